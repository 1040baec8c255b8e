//! Consistency of the GPU table, comparison with published figures, and typical queries for `find`.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::context::{ModuleLoading, OBSERVATIONS, context_bytes};
use super::{ComputeCapability, Device, Provenance, UnknownDevice, devices, find, reported};
use crate::dtype::Dtype;

const MIB: u64 = 1 << 20;

#[track_caller]
fn named(query: &str, expected: &str) {
    assert_eq!(find(query).expect(query).name, expected, "for {query:?}");
}

#[track_caller]
fn ambiguous(query: &str, expected: &[&str]) {
    match find(query) {
        Err(UnknownDevice::Ambiguous { candidates, .. }) => assert_eq!(candidates, expected, "for {query:?}"),
        other => panic!("{query:?} gave {other:?}"),
    }
}

#[track_caller]
fn unknown(query: &str, suggestion: &str) {
    match find(query) {
        Err(UnknownDevice::NotFound { suggestions, .. }) => {
            assert!(suggestions.contains(&suggestion), "{query:?} suggests {suggestions:?}");
        }
        other => panic!("{query:?} gave {other:?}"),
    }
}

#[test]
fn table_has_the_promised_breadth() {
    assert!(devices().len() >= 50, "{} rows", devices().len());
    let measured = devices().iter().filter(|row| matches!(row.total_provenance, Provenance::Measured { .. })).count();
    assert!(measured >= 45, "{measured} measured");
}

#[test]
fn table_is_sorted_by_compute_capability() {
    assert!(devices().is_sorted_by_key(|row| row.compute_capability));
}

#[test]
fn names_and_aliases_are_unique() {
    let mut seen = BTreeSet::new();
    for row in devices() {
        for spelling in std::iter::once(&*row.name).chain(row.aliases.iter().copied()) {
            assert!(seen.insert(spelling.to_lowercase()), "{spelling} twice");
        }
        assert!(!row.name.starts_with("NVIDIA"), "{}", row.name);
        assert!(row.name.starts_with(&*row.reported_name), "{}", row.name);
    }
}

#[test]
fn a_shared_reported_name_gets_its_size_in_the_name() {
    for row in devices() {
        let sharing = devices().iter().filter(|other| other.reported_name == row.reported_name).count();
        assert_eq!(sharing > 1, row.name != row.reported_name, "{}", row.name);
    }
}

#[test]
fn totals_are_between_nine_tenths_of_nominal_and_nominal() {
    for row in devices() {
        assert!(row.total_bytes <= row.vram_bytes_nominal, "{}", row.name);
        assert!(row.total_bytes >= row.vram_bytes_nominal / 10 * 9, "{}", row.name);
        let [low, high] = row.total_bytes_band();
        assert!(low < row.total_bytes && row.total_bytes <= high, "{}", row.name);
    }
}

#[test]
fn every_row_says_what_it_rests_on() {
    for row in devices() {
        let total = match row.total_provenance {
            Provenance::Measured { source } => source,
            Provenance::Estimated { rule } => rule,
            Provenance::Given => panic!("{} is a row", row.name),
        };
        assert!(!total.is_empty() && !row.source.is_empty(), "{}", row.name);
    }
}

#[test]
fn rates_exist_exactly_where_the_hardware_has_them() {
    for row in devices() {
        let capability = row.compute_capability;
        let bf16 = capability >= ComputeCapability::new(8, 0);
        assert_eq!(row.rates.bf16.is_some(), bf16, "{}", row.name);
        assert_eq!(row.rates.tf32.is_some(), bf16, "{}", row.name);
        assert_eq!(row.supports_bfloat16(), bf16, "{}", row.name);
        let tensor_cores = capability >= ComputeCapability::new(7, 0) && !row.name.contains("GTX");
        assert_eq!(row.rates.fp16.is_some(), tensor_cores, "{}", row.name);
        assert!(row.rates.fp32.is_some_and(|rate| (1e12..2e14).contains(&(rate as f64))), "{}", row.name);
        assert!(row.rates.fp16.is_none_or(|rate| (1e13..1e16).contains(&(rate as f64))), "{}", row.name);
        assert_eq!(row.peak_flops(Dtype::Bfloat16), row.rates.bf16);
    }
}

#[test]
fn bandwidth_and_multiprocessors_are_plausible() {
    for row in devices() {
        assert!(row.memory_bandwidth.is_some_and(|rate| (1e11..1e13).contains(&(rate as f64))), "{}", row.name);
        assert!(row.sm_count.is_some_and(|count| (6..=192).contains(&count)), "{}", row.name);
        // Reading all memory once takes 10 to 200 ms on every GPU sold since 2016.
        let sweep = row.vram_bytes_nominal as f64 / row.memory_bandwidth.unwrap() as f64;
        assert!((0.01..0.2).contains(&sweep), "{} sweeps in {sweep} s", row.name);
    }
}

/// Compares the products of `row` with the data sheets' TFLOP/s: float32, and float16 with float32 accumulation.
#[test]
fn derived_rates_match_the_data_sheets() {
    let published = [
        ("GTX 1050 Ti", 2.1, None),
        ("GTX 1650", 3.0, None),
        ("GTX 1080 Ti", 11.3, None),
        ("V100-SXM2-16GB", 15.7, Some(125.0)),
        ("V100-PCIE-32GB", 14.0, Some(112.0)),
        ("Tesla T4", 8.1, Some(65.0)),
        ("RTX 2080 Ti", 13.4, Some(53.8)),
        ("TITAN RTX", 16.3, Some(130.5)),
        ("RTX 3060 12GB", 12.7, Some(25.5)),
        ("RTX 3070", 20.3, Some(40.6)),
        ("RTX 3080 10GB", 29.8, Some(59.5)),
        ("RTX 3090", 35.6, Some(71.0)),
        ("RTX 4070", 29.1, Some(58.3)),
        ("RTX 4070 Ti", 40.1, Some(80.2)),
        ("RTX 4080", 48.7, Some(97.5)),
        ("RTX 4090", 82.6, Some(165.2)),
        ("RTX 5050", 13.2, Some(26.3)),
        ("RTX 5070", 30.9, Some(61.7)),
        ("RTX 5080", 56.3, Some(112.6)),
        ("RTX 5090", 104.8, Some(209.5)),
        ("RTX A6000", 38.7, Some(154.8)),
        ("RTX 6000 Ada", 91.1, Some(364.2)),
        ("A10", 31.2, Some(125.0)),
        ("A10G", 35.0, Some(70.0)),
        ("A30", 10.3, Some(165.0)),
        ("A40", 37.4, Some(149.7)),
        ("A100-SXM4-40GB", 19.5, Some(312.0)),
        ("L4", 30.3, Some(121.0)),
        ("L40", 90.5, Some(181.0)),
        ("L40S", 91.6, Some(362.0)),
    ];
    for (name, fp32, fp16) in published {
        let row = find(name).unwrap();
        let close = |rate: u64, teraflops: f64| (rate as f64 / 1e12 / teraflops - 1.0).abs() < 0.02;
        assert!(close(row.rates.fp32.unwrap(), fp32), "{name}: {:?}", row.rates.fp32);
        assert_eq!(row.rates.fp16.is_some(), fp16.is_some(), "{name}");
        if let (Some(rate), Some(expected)) = (row.rates.fp16, fp16) {
            assert!(close(rate, expected), "{name}: {rate}");
        }
    }
}

#[test]
fn the_estimate_rule_comes_close_to_the_measured_rows() {
    let total = |query: &str| find(query).unwrap().total_bytes;
    // GPUs that share architecture and size with a measured one.
    for (estimated, measured) in
        [("3070 Ti", "3070"), ("4080", "4080 Super"), ("3080 12GB", "3060 12GB"), ("1070 Ti", "1070")]
    {
        let ratio = total(estimated) as f64 / total(measured) as f64;
        assert!((ratio - 1.0).abs() < 0.015, "{estimated} is {ratio} of {measured}");
    }
}

#[test]
fn totals_are_what_the_messages_print() {
    for (name, gib) in
        [("4070", "11.69"), ("3060", "11.76"), ("3090", "23.69"), ("4090", "23.64"), ("V100 16GB", "15.77")]
    {
        assert_eq!(format!("{:.2}", find(name).unwrap().total_gib()), gib, "{name}");
    }
    assert_eq!(find("H200").unwrap().total_bytes, 143_156 * MIB);
}

#[test]
fn finds_what_the_tools_print() {
    for row in devices() {
        named(&row.name, &row.name);
        named(&format!("NVIDIA {}", row.name), &row.name);
        for alias in row.aliases {
            named(alias, &row.name);
        }
        if row.name == row.reported_name {
            named(&row.reported_name.to_uppercase(), &row.name);
        }
    }
}

#[test]
fn finds_what_people_type() {
    named("rtx4070", "GeForce RTX 4070");
    named("4070", "GeForce RTX 4070");
    named("  Nvidia   rtx-4070 ", "GeForce RTX 4070");
    named("RTX 4070 12GB", "GeForce RTX 4070");
    named("RTX 4070 12 GB", "GeForce RTX 4070");
    named("4070 ti super", "GeForce RTX 4070 Ti SUPER");
    named("4070ti", "GeForce RTX 4070 Ti");
    named("rtx3060", "GeForce RTX 3060 12GB");
    named("colab t4", "Tesla T4");
    named("4070tisuper", "GeForce RTX 4070 Ti SUPER");
    named("RTX4070TiS", "GeForce RTX 4070 Ti SUPER");
    named("2070s", "GeForce RTX 2070 SUPER");
    named("1080ti", "GeForce GTX 1080 Ti");
    named("4060ti 16gb", "GeForce RTX 4060 Ti 16GB");
    named("4090 laptop", "GeForce RTX 4090 Laptop GPU");
    named("4090m", "GeForce RTX 4090 Laptop GPU");
    named("rtx 3080 mobile 16gb", "GeForce RTX 3080 Laptop GPU 16GB");
    named("a6000", "RTX A6000");
    named("6000 ada", "RTX 6000 Ada Generation");
    named("rtx pro 6000", "RTX PRO 6000 Blackwell Workstation Edition");
    named("t4", "Tesla T4");
    named("L40S", "L40S");
    named("A100 80GB", "A100-SXM4-80GB");
    named("a100-pcie 80gb", "A100 80GB PCIe");
    named("A100 SXM4 40GB", "A100-SXM4-40GB");
    named("H100", "H100 80GB HBM3");
    named("H100-SXM", "H100 80GB HBM3");
    named("h100 pcie", "H100 PCIe");
    named("V100 32GB", "Tesla V100-SXM2-32GB");
    named("A100-40", "A100-SXM4-40GB");
    named("a100-80", "A100-SXM4-80GB");
    named("3060 12", "GeForce RTX 3060 12GB");
    named("5050 laptop", "GeForce RTX 5050 Laptop GPU");
    named("NVIDIA GeForce RTX 3050 Laptop GPU", "GeForce RTX 3050 Laptop GPU");
    named("3050 laptop 4gb", "GeForce RTX 3050 Laptop GPU");
    named("NVIDIA GeForce RTX 3050 6GB Laptop GPU", "GeForce RTX 3050 6GB Laptop GPU");
    named("3050 laptop 6gb", "GeForce RTX 3050 6GB Laptop GPU");
    named("RTX 2050", "GeForce RTX 2050");
    named("GeForce RTX 2070 with Max-Q Design", "GeForce RTX 2070");
    named("2080 super max-q", "GeForce RTX 2080 SUPER");
    named("rtx 2060 mobile", "GeForce RTX 2060 6GB");
    named("gtx 1650 laptop", "GeForce GTX 1650 with Max-Q Design");
    named("GTX 1650 Ti", "GeForce GTX 1650 Ti");
    named("1660 ti max-q", "GeForce GTX 1660 Ti");
    named("GTX 1070 laptop", "GeForce GTX 1070 with Max-Q Design");
    named("1080m", "GeForce GTX 1080");
    for counted in ["2xT4", "2 x T4", "T4 x2", "Kaggle T4 x2"] {
        assert_eq!(find(counted).expect(counted).name, find("T4").expect("a T4").name, "{counted}");
    }
    assert!(matches!(find("8x A100"), Err(UnknownDevice::Ambiguous { .. })));
    assert!(find("2x").is_err() && find("2x 3x").is_err() && find("100x T4").is_err());
}

#[test]
fn defaults_are_the_documented_ones() {
    named("RTX 3060", "GeForce RTX 3060 12GB");
    named("NVIDIA GeForce RTX 3060", "GeForce RTX 3060 12GB");
    named("RTX 3080", "GeForce RTX 3080 10GB");
    named("RTX 2060", "GeForce RTX 2060 6GB");
    named("RTX 3050", "GeForce RTX 3050 8GB");
    named("RTX A2000", "RTX A2000");
}

#[test]
fn refuses_to_guess_the_memory() {
    ambiguous("RTX 4060 Ti", &["GeForce RTX 4060 Ti 8GB", "GeForce RTX 4060 Ti 16GB"]);
    ambiguous("5060 ti", &["GeForce RTX 5060 Ti 8GB", "GeForce RTX 5060 Ti 16GB"]);
    ambiguous("3080 laptop", &["GeForce RTX 3080 Laptop GPU 8GB", "GeForce RTX 3080 Laptop GPU 16GB"]);
    ambiguous("A100", &["A100-SXM4-40GB", "A100-PCIE-40GB", "A100-SXM4-80GB", "A100 80GB PCIe"]);
    ambiguous("3050 laptop", &["GeForce RTX 3050 Laptop GPU", "GeForce RTX 3050 6GB Laptop GPU"]);
    for text in ["RTX 6000", "rtx6000"] {
        let error = find(text).unwrap_err();
        assert!(matches!(error, UnknownDevice::Ambiguous { .. }), "{error}");
        assert!(["Quadro RTX 6000", "RTX 6000 Ada Generation"].iter().all(|name| error.suggestions().contains(name)));
    }
    ambiguous("V100 SXM2", &["Tesla V100-SXM2-16GB", "Tesla V100-SXM2-32GB"]);
    let text = find("A100").unwrap_err().to_string();
    assert!(text.contains("choose one: A100-SXM4-40GB, "), "{text}");
}

#[test]
fn says_what_is_close_when_nothing_matches() {
    unknown("RTX 4070 16GB", "GeForce RTX 4070");
    unknown("GTX 1060 3GB", "GeForce GTX 1060 6GB");
    unknown("3090 super", "GeForce RTX 3090");
    unknown("RTX 4071", "GeForce RTX 4070");
    assert!(find("").is_err() && find("NVIDIA").is_err() && find("RTX").is_err() && find("80GB").is_err());
    assert!(find("Radeon RX 7900 XTX").is_err());
    assert_eq!(find("RTX 4071").unwrap_err().suggestions()[0], "GeForce RTX 4070");
    // A query without similar names has no suggestions.
    for text in ["no such card", "RTX 9999", "M3", "Apple M3 Max"] {
        let error = find(text).unwrap_err();
        assert_eq!(error.suggestions(), <[&str; 0]>::default(), "{text}");
        assert!(error.to_string().ends_with("the table has NVIDIA GPUs since Pascal"), "{error}");
    }
    assert!(find(&"x".repeat(100_000)).unwrap_err().to_string().len() < 1_000);
}

/// Random strings composed of typical parts of GPU names.
const NEAR_MISS: &str = "(rtx|gtx|nvidia|a|h)?[ -]?[0-9]{0,25}[ ]?(ti|s|super|gb|m|laptop| |[0-9]){0,4}";

proptest! {
    #[test]
    fn find_never_panics(query in ".*") {
        let _ = find(&query);
    }

    #[test]
    fn find_never_panics_on_near_misses(query in NEAR_MISS) {
        if let Ok(device) = find(&query) {
            prop_assert!(devices().iter().any(|row| row.name == device.name));
        }
    }

    #[test]
    fn capability_text_round_trips(major in 0_u8..=255, minor in 0_u8..=9) {
        let capability = ComputeCapability::new(major, minor);
        prop_assert_eq!(capability.to_string().parse(), Ok(capability));
        prop_assert_eq!(format!("sm_{major}{minor}").parse(), Ok(capability));
    }

    #[test]
    fn capability_parsing_never_panics(text in ".*") {
        let _ = text.parse::<ComputeCapability>();
    }
}

#[test]
fn capability_orders_and_refuses_nonsense() {
    let parse = |text: &str| text.parse::<ComputeCapability>();
    assert!(parse("8.9").unwrap() < parse("12.0").unwrap());
    assert!(parse("sm_86").unwrap() < parse("compute_90").unwrap());
    for text in ["", "8", "89", "8.", ".9", "8.90", "-8.9", "+8.9", "8.9.1", "sm_", "sm_9", "256.0", "８.９"] {
        assert!(parse(text).is_err(), "{text:?}");
    }
}

#[test]
fn device_serializes_as_the_command_line_promises() {
    let json = serde_json::to_string(&Device::custom(12_549_816_320, ComputeCapability::new(8, 9))).unwrap();
    assert_eq!(json, r#"{"name":"11.69 GiB GPU (8.9)","total_bytes":12549816320,"compute_capability":"8.9"}"#);
    let json = serde_json::to_value(find("rtx 5090").unwrap()).unwrap();
    assert_eq!(json["compute_capability"], "12.0");
    assert_eq!(json.as_object().unwrap().len(), 3);
}

#[test]
fn context_estimate_covers_every_observation() {
    assert!(OBSERVATIONS.len() >= 20);
    let mut errors: Vec<f64> = Vec::new();
    for seen in OBSERVATIONS {
        let estimate = context_bytes(seen.capability, Some(seen.sm_count), ModuleLoading::Lazy);
        let bytes = u64::from(seen.mib) * MIB;
        assert!((estimate.band_low..=estimate.band_high).contains(&bytes), "{}: {estimate:?}", seen.device);
        errors.push((estimate.bytes as f64 / bytes as f64 - 1.0).abs());
    }
    errors.sort_by(f64::total_cmp);
    assert!(errors[errors.len() / 2] < 0.05, "median error {}", errors[errors.len() / 2]);
}

#[test]
fn context_of_a_custom_gpu_is_that_of_the_nearest_row() {
    let custom = Device::custom(12_549_816_320, ComputeCapability::new(8, 9));
    let row = find("RTX 4070").unwrap();
    assert_eq!(custom.context(ModuleLoading::Lazy), row.context(ModuleLoading::Lazy));
    assert_eq!(custom.total_bytes_band(), [custom.total_bytes; 2]);
    let strange = Device::custom(12_549_816_320, ComputeCapability::new(99, 0)).context(ModuleLoading::default());
    assert!(strange.band_low < strange.bytes && strange.bytes < strange.band_high);
    assert!(row.context(ModuleLoading::Eager).bytes > row.context(ModuleLoading::Lazy).bytes + 512 * MIB);
}

/// The driver's report for each GPU: its name, and a total slightly above CUDA's.
#[test]
fn every_gpu_is_found_by_driver_name() {
    for device in devices() {
        let name = format!("NVIDIA {}", device.reported_name);
        let found = reported(&name, Some(device.total_bytes + 500 * MIB)).map(|found| &found.name);
        assert_eq!(found, Some(&device.name), "{name}");
    }
    for none in ["NVIDIA GeForce RTX 9999", "NVIDIA H100 80GB HBM3 MIG 1g.10gb", "NVIDIA H100 MIG 1g.10gb", ""] {
        assert_eq!(reported(none, Some(20 << 30)), None, "{none}");
    }
}
