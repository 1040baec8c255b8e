//! The processor's name.

/// Returns the processor's name as the system reports it, or its architecture otherwise.
pub fn processor() -> String {
    reported_model().as_deref().and_then(name).unwrap_or_else(|| format!("{} processor", std::env::consts::ARCH))
}

#[cfg(target_os = "linux")]
fn reported_model() -> Option<String> {
    use std::fs::read_to_string;
    let model = read_to_string("/proc/cpuinfo").ok().and_then(|text| model_name(&text).map(str::to_owned));
    // Arm's cpuinfo has only numbers, but the boards have a model name.
    model.or_else(|| read_to_string("/sys/firmware/devicetree/base/model").ok())
}

#[cfg(target_os = "macos")]
fn reported_model() -> Option<String> {
    let output = std::process::Command::new("/usr/sbin/sysctl").args(["-n", "machdep.cpu.brand_string"]).output();
    String::from_utf8(output.ok()?.stdout).ok()
}

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
fn reported_model() -> Option<String> {
    std::env::var("PROCESSOR_IDENTIFIER").ok()
}

/// Returns the first processor's name in `/proc/cpuinfo`.
#[cfg(any(target_os = "linux", test))]
fn model_name(cpuinfo: &str) -> Option<&str> {
    let fields = cpuinfo.lines().filter_map(|line| line.split_once(':'));
    let named = |key: &str| fields.clone().find(|(name, _)| name.trim() == key).map(|(_, value)| value.trim());
    ["model name", "Model", "cpu model", "Hardware", "cpu"].into_iter().find_map(named)
}

/// Collapses whitespace to single blanks; `None` if nothing remains.
fn name(reported_model: &str) -> Option<String> {
    let words: Vec<&str> =
        reported_model.split(|c: char| c.is_whitespace() || c.is_control()).filter(|w| !w.is_empty()).collect();
    (!words.is_empty()).then(|| words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpuinfo_is_read_on_every_kind_of_processor() {
        for (cpuinfo, reported_model) in [
            ("processor\t: 0\nmodel\t\t: 85\nmodel name\t: Intel(R) Core(TM)\n", Some("Intel(R) Core(TM)")),
            (
                "processor\t: 0\nBogoMIPS\t: 108.00\n\nHardware\t: BCM2835\nModel\t\t: Raspberry Pi 4\n",
                Some("Raspberry Pi 4"),
            ),
            ("processor\t: 0\ncpu\t\t: POWER9, altivec supported\n", Some("POWER9, altivec supported")),
            ("processor\t: 0\nCPU implementer\t: 0x41\n", None),
            ("", None),
        ] {
            assert_eq!(model_name(cpuinfo), reported_model);
        }
    }

    #[test]
    fn a_name_is_one_line() {
        assert_eq!(name("  AMD  EPYC\t9654 \n\0").as_deref(), Some("AMD EPYC 9654"));
        assert_eq!(name(" \n\0"), None);
        assert!(!processor().is_empty());
    }
}
