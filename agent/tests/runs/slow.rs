//! Export of the readings of once a second.

use headroom_protocol::metric::Group;

use super::*;

#[test]
fn slow_readings_are_exported_by_group() {
    let rig = Rig::new();
    // The first command migrates the file.
    rig.exits(&[], 0);
    let connection = Connection::open(rig.path("history.sqlite")).expect("the file");
    let slow = format!(
        "INSERT INTO slow_samples (time_ms, gpu, fan_percent, pcie_receive_bytes_per_second, \
         pcie_send_bytes_per_second, energy_joules, ecc_uncorrected) VALUES ({START_MS}, 1, 38, 1500000, 0, 12.5, 3)"
    );
    let host = format!(
        "INSERT INTO host_samples (time_ms, gpu, host_cpu_percent, host_memory_used_bytes) \
         VALUES ({START_MS}, 0, 12.5, 1024)"
    );
    connection.execute_batch(&format!("{slow}; {host}; DELETE FROM facts WHERE name GLOB 'cut_*'")).expect("samples");
    let csv = |args: &[&str]| text(&rig.exits(&[&["export"], args].concat(), 0).stdout).to_owned();
    // Later metrics come last, and are missing.
    let later = |group: Group, n: usize| -> (String, String) {
        let names = group.metrics()[n..].iter().map(|metric| metric.name());
        names.map(|name| (format!(",{name}_min,{name}_mean,{name}_max"), ",,,")).unzip()
    };
    let (names, empty) = later(Group::Slow, 6);
    assert_eq!(
        csv(&["--gpu", "0", "--readings", "slow"]),
        format!(
            "time_ms,step_ms,fan_percent_min,fan_percent_mean,fan_percent_max,pcie_receive_bytes_per_second_min,\
             pcie_receive_bytes_per_second_mean,pcie_receive_bytes_per_second_max,pcie_send_bytes_per_second_min,\
             pcie_send_bytes_per_second_mean,pcie_send_bytes_per_second_max,energy_joules_min,energy_joules_mean,\
             energy_joules_max,ecc_corrected_min,ecc_corrected_mean,ecc_corrected_max,ecc_uncorrected_min,\
             ecc_uncorrected_mean,ecc_uncorrected_max{names}\n\
             {START_MS},1000,38,38,38,1500000,1500000,1500000,0,0,0,12.5,12.5,12.5,,,,3,3,3{empty}\n"
        )
    );
    let (_, empty) = later(Group::Host, 3);
    let row = format!("\n{START_MS},1000,12.5,12.5,12.5,1024,1024,1024,,,{empty}\n");
    assert!(csv(&["--readings", "host"]).ends_with(&row));
    let json = rig.json(&["export", "--readings", "host", "--format", "json"]);
    assert_eq!((&json["metrics"][0], &json["gpu"]), (&"host_cpu".into(), &Value::Null));
    assert_eq!(json["parts"][0]["series"][1]["max"][0], 1024.0);
}
