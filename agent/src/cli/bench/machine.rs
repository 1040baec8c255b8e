//! What the processor is called.

/// The processor's name, as the system tells it; where it tells none, the kind of processor this program is for.
pub fn processor() -> String {
    told().as_deref().and_then(name).unwrap_or_else(|| format!("{} processor", std::env::consts::ARCH))
}

#[cfg(target_os = "linux")]
fn told() -> Option<String> {
    use std::fs::read_to_string;
    let model = read_to_string("/proc/cpuinfo").ok().and_then(|text| model_name(&text).map(str::to_owned));
    // Arm's cpuinfo has numbers alone, but its boards say what they are.
    model.or_else(|| read_to_string("/sys/firmware/devicetree/base/model").ok())
}

#[cfg(target_os = "macos")]
fn told() -> Option<String> {
    let output = std::process::Command::new("/usr/sbin/sysctl").args(["-n", "machdep.cpu.brand_string"]).output();
    String::from_utf8(output.ok()?.stdout).ok()
}

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
fn told() -> Option<String> {
    std::env::var("PROCESSOR_IDENTIFIER").ok()
}

/// The first processor's name in `/proc/cpuinfo`.
#[cfg(any(target_os = "linux", test))]
fn model_name(cpuinfo: &str) -> Option<&str> {
    let fields = cpuinfo.lines().filter_map(|line| line.split_once(':'));
    let named = |key: &str| fields.clone().find(|(name, _)| name.trim() == key).map(|(_, value)| value.trim());
    ["model name", "Model", "cpu model", "Hardware", "cpu"].into_iter().find_map(named)
}

/// One line of single blanks; none where nothing is left.
fn name(told: &str) -> Option<String> {
    let words: Vec<&str> =
        told.split(|c: char| c.is_whitespace() || c.is_control()).filter(|w| !w.is_empty()).collect();
    (!words.is_empty()).then(|| words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpuinfo_is_read_on_every_kind_of_processor() {
        for (cpuinfo, told) in [
            ("processor\t: 0\nmodel\t\t: 85\nmodel name\t: Intel(R) Core(TM)\n", Some("Intel(R) Core(TM)")),
            (
                "processor\t: 0\nBogoMIPS\t: 108.00\n\nHardware\t: BCM2835\nModel\t\t: Raspberry Pi 4\n",
                Some("Raspberry Pi 4"),
            ),
            ("processor\t: 0\ncpu\t\t: POWER9, altivec supported\n", Some("POWER9, altivec supported")),
            ("processor\t: 0\nCPU implementer\t: 0x41\n", None),
            ("", None),
        ] {
            assert_eq!(model_name(cpuinfo), told);
        }
    }

    #[test]
    fn a_name_is_one_line() {
        assert_eq!(name("  AMD  EPYC\t9654 \n\0").as_deref(), Some("AMD EPYC 9654"));
        assert_eq!(name(" \n\0"), None);
        assert!(!processor().is_empty());
    }
}
