//! The order of GPUs in lists: desktop GeForce first, then laptops, workstations and data centres; within each, the
//! most common GPUs first.
//!
//! The GeForce order approximates the Steam hardware survey; the others follow the offers of clouds and notebooks.

use super::{Device, devices};

/// Kind of machine that a GPU is sold for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Segment {
    /// GeForce and TITAN boards.
    Desktop,
    /// GeForce in laptops.
    Laptop,
    /// Quadro, RTX A and RTX PRO boards.
    Workstation,
    /// Tesla and later data centre GPUs.
    DataCentre,
}

impl Segment {
    /// Name for JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Desktop => "desktop",
            Self::Laptop => "laptop",
            Self::Workstation => "workstation",
            Self::DataCentre => "data_center",
        }
    }
}

/// Names from the table, by segment and then by popularity. Contains every device of the table once.
const ORDER: [(Segment, &[&str]); 4] = [
    (
        Segment::Desktop,
        &[
            "GeForce RTX 3060 12GB",
            "GeForce RTX 4060",
            "GeForce RTX 5070",
            "GeForce RTX 4070",
            "GeForce RTX 3060 Ti",
            "GeForce RTX 5060",
            "GeForce RTX 4060 Ti 8GB",
            "GeForce RTX 4060 Ti 16GB",
            "GeForce RTX 5060 Ti 16GB",
            "GeForce RTX 5060 Ti 8GB",
            "GeForce RTX 4090",
            "GeForce RTX 3090",
            "GeForce RTX 5090",
            "GeForce RTX 3070",
            "GeForce RTX 4070 SUPER",
            "GeForce RTX 5070 Ti",
            "GeForce RTX 3080 10GB",
            "GeForce RTX 5080",
            "GeForce RTX 4070 Ti",
            "GeForce RTX 4070 Ti SUPER",
            "GeForce RTX 4080 SUPER",
            "GeForce RTX 4080",
            "GeForce RTX 3050 8GB",
            "GeForce RTX 2060 6GB",
            "GeForce RTX 3070 Ti",
            "GeForce RTX 3080 Ti",
            "GeForce RTX 2070 SUPER",
            "GeForce RTX 2060 SUPER",
            "GeForce RTX 2080 Ti",
            "GeForce RTX 2070",
            "GeForce RTX 2080 SUPER",
            "GeForce RTX 2080",
            "GeForce RTX 3090 Ti",
            "GeForce RTX 3080 12GB",
            "GeForce RTX 5050",
            "GeForce RTX 3050 6GB",
            "GeForce RTX 3060 8GB",
            "GeForce RTX 2060 12GB",
            "GeForce GTX 1650",
            "GeForce GTX 1060 6GB",
            "GeForce GTX 1660 SUPER",
            "GeForce GTX 1660 Ti",
            "GeForce GTX 1660",
            "GeForce GTX 1080 Ti",
            "GeForce GTX 1070",
            "GeForce GTX 1080",
            "GeForce GTX 1070 Ti",
            "GeForce GTX 1050 Ti",
            "GeForce GTX 1650 SUPER",
            "TITAN RTX",
            "TITAN V",
            "TITAN Xp",
        ],
    ),
    (
        Segment::Laptop,
        &[
            "GeForce RTX 4060 Laptop GPU",
            "GeForce RTX 3060 Laptop GPU",
            "GeForce RTX 4050 Laptop GPU",
            "GeForce RTX 5060 Laptop GPU",
            "GeForce RTX 4070 Laptop GPU",
            "GeForce RTX 3050 Laptop GPU",
            "GeForce RTX 3050 6GB Laptop GPU",
            "GeForce RTX 5070 Laptop GPU",
            "GeForce RTX 3070 Laptop GPU",
            "GeForce RTX 5070 Ti Laptop GPU",
            "GeForce RTX 4080 Laptop GPU",
            "GeForce RTX 4090 Laptop GPU",
            "GeForce RTX 5080 Laptop GPU",
            "GeForce RTX 5090 Laptop GPU",
            "GeForce RTX 5050 Laptop GPU",
            "GeForce RTX 3070 Ti Laptop GPU",
            "GeForce RTX 3050 Ti Laptop GPU",
            "GeForce RTX 3080 Laptop GPU 8GB",
            "GeForce RTX 3080 Laptop GPU 16GB",
            "GeForce RTX 3080 Ti Laptop GPU",
            "GeForce RTX 2050",
            "GeForce GTX 1650 Ti",
            "GeForce GTX 1650 with Max-Q Design",
            "GeForce GTX 1070 with Max-Q Design",
        ],
    ),
    (
        Segment::Workstation,
        &[
            "RTX A6000",
            "RTX 6000 Ada Generation",
            "RTX A4000",
            "RTX A5000",
            "RTX A2000 12GB",
            "RTX A2000",
            "RTX A4500",
            "RTX 4000 Ada Generation",
            "RTX 5000 Ada Generation",
            "RTX 2000 Ada Generation",
            "RTX 4500 Ada Generation",
            "RTX PRO 6000 Blackwell Workstation Edition",
            "RTX PRO 6000 Blackwell Max-Q Workstation Edition",
            "RTX PRO 6000 Blackwell Server Edition",
            "Quadro RTX 6000",
            "Quadro RTX 8000",
        ],
    ),
    (
        Segment::DataCentre,
        &[
            "Tesla T4",
            "A100-SXM4-80GB",
            "A100-SXM4-40GB",
            "H100 80GB HBM3",
            "L4",
            "A10G",
            "L40S",
            "A100 80GB PCIe",
            "A100-PCIE-40GB",
            "H100 PCIe",
            "H200",
            "Tesla V100-SXM2-16GB",
            "Tesla V100-SXM2-32GB",
            "Tesla P100-PCIE-16GB",
            "A40",
            "A10",
            "L40",
            "H100 NVL",
            "B200",
            "A30",
            "GB200",
            "Tesla V100-PCIE-16GB",
            "Tesla V100-PCIE-32GB",
        ],
    ),
];

/// Every device of the table with its segment, in list order.
pub fn by_popularity() -> impl Iterator<Item = (Segment, &'static Device)> {
    let named = |name: &str| devices().iter().find(|device| device.name == name);
    ORDER.iter().flat_map(move |(segment, names)| {
        names.iter().filter_map(move |name| named(name).map(|device| (*segment, device)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_device_is_offered_once() {
        let mut names: Vec<_> = by_popularity().map(|(_, device)| &*device.name).collect();
        let listed: usize = ORDER.iter().map(|(_, names)| names.len()).sum();
        assert_eq!(listed, devices().len(), "a name that is not in the table, or a device without a place");
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), devices().len());
    }

    #[test]
    fn desktops_come_first_and_each_segment_holds_its_own() {
        let all: Vec<_> = by_popularity().collect();
        assert!(all.is_sorted_by_key(|(segment, _)| *segment));
        for (segment, device) in all {
            let is_laptop = device.name.contains("Laptop") || device.name.contains("Max-Q Design");
            assert!(!is_laptop || segment == Segment::Laptop, "{}", device.name);
            let is_desktop = segment == Segment::Desktop;
            assert!(!is_desktop || device.name.starts_with("GeForce") || device.name.starts_with("TITAN"));
        }
    }
}
