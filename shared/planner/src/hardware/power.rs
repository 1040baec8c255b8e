//! The power limit of each board, as NVIDIA publishes it or its driver prints it.
//!
//! The figures have a file of their own, because pages that show no energy leave them out. A laptop has none: its maker
//! chooses a limit from a range. The GB200 has none either: its limit is configured for a whole superchip.

use super::Device;

/// Boards with figures of one source.
struct Published {
    /// The specifications.
    source: &'static str,
    /// Names from the table, with their watts. If NVIDIA lists a Founders Edition too, the larger figure.
    boards: &'static [(&'static str, u16)],
}

static PUBLISHED: [Published; 10] = [
    Published {
        source: cite!("NVIDIA GeForce 10 and TITAN specifications, graphics power"),
        boards: &[
            ("GeForce GTX 1050 Ti", 75),
            ("GeForce GTX 1060 6GB", 120),
            ("GeForce GTX 1070", 150),
            ("GeForce GTX 1070 Ti", 180),
            ("GeForce GTX 1080", 180),
            ("GeForce GTX 1080 Ti", 250),
            ("TITAN Xp", 250),
            ("TITAN V", 250),
        ],
    },
    Published {
        source: cite!("NVIDIA GeForce 16, 20 and TITAN RTX specifications, graphics power"),
        boards: &[
            ("GeForce GTX 1650", 75),
            ("GeForce GTX 1650 SUPER", 100),
            ("GeForce GTX 1660", 120),
            ("GeForce GTX 1660 SUPER", 125),
            ("GeForce GTX 1660 Ti", 120),
            ("GeForce RTX 2060 6GB", 160),
            ("GeForce RTX 2060 12GB", 185),
            ("GeForce RTX 2060 SUPER", 175),
            ("GeForce RTX 2070", 185),
            ("GeForce RTX 2070 SUPER", 215),
            ("GeForce RTX 2080", 225),
            ("GeForce RTX 2080 SUPER", 250),
            ("GeForce RTX 2080 Ti", 260),
            ("TITAN RTX", 280),
        ],
    },
    Published {
        source: cite!("NVIDIA GeForce 30 specifications, graphics power"),
        boards: &[
            ("GeForce RTX 3050 6GB", 70),
            ("GeForce RTX 3050 8GB", 130),
            ("GeForce RTX 3060 8GB", 170),
            ("GeForce RTX 3060 12GB", 170),
            ("GeForce RTX 3060 Ti", 200),
            ("GeForce RTX 3070", 220),
            ("GeForce RTX 3070 Ti", 290),
            ("GeForce RTX 3080 10GB", 320),
            ("GeForce RTX 3080 12GB", 350),
            ("GeForce RTX 3080 Ti", 350),
            ("GeForce RTX 3090", 350),
            ("GeForce RTX 3090 Ti", 450),
        ],
    },
    Published {
        source: cite!("NVIDIA GeForce 40 specifications, total graphics power"),
        boards: &[
            ("GeForce RTX 4060", 115),
            ("GeForce RTX 4060 Ti 8GB", 160),
            ("GeForce RTX 4060 Ti 16GB", 165),
            ("GeForce RTX 4070", 200),
            ("GeForce RTX 4070 SUPER", 220),
            ("GeForce RTX 4070 Ti", 285),
            ("GeForce RTX 4070 Ti SUPER", 285),
            ("GeForce RTX 4080", 320),
            ("GeForce RTX 4080 SUPER", 320),
            ("GeForce RTX 4090", 450),
        ],
    },
    Published {
        source: cite!("NVIDIA GeForce 50 specifications, total graphics power"),
        boards: &[
            ("GeForce RTX 5050", 130),
            ("GeForce RTX 5060", 145),
            ("GeForce RTX 5060 Ti 8GB", 180),
            ("GeForce RTX 5060 Ti 16GB", 180),
            ("GeForce RTX 5070", 250),
            ("GeForce RTX 5070 Ti", 300),
            ("GeForce RTX 5080", 360),
            ("GeForce RTX 5090", 575),
        ],
    },
    Published {
        source: cite!("NVIDIA Quadro RTX and RTX A data sheets, total board power"),
        boards: &[
            ("Quadro RTX 6000", 295),
            ("Quadro RTX 8000", 295),
            ("RTX A2000", 70),
            ("RTX A2000 12GB", 70),
            ("RTX A4000", 140),
            ("RTX A4500", 200),
            ("RTX A5000", 230),
            ("RTX A6000", 300),
        ],
    },
    Published {
        source: cite!("NVIDIA RTX Ada and RTX PRO Blackwell data sheets, total board power"),
        boards: &[
            ("RTX 2000 Ada Generation", 70),
            ("RTX 4000 Ada Generation", 130),
            ("RTX 4500 Ada Generation", 210),
            ("RTX 5000 Ada Generation", 250),
            ("RTX 6000 Ada Generation", 300),
            ("RTX PRO 6000 Blackwell Workstation Edition", 600),
            ("RTX PRO 6000 Blackwell Max-Q Workstation Edition", 300),
            ("RTX PRO 6000 Blackwell Server Edition", 600),
        ],
    },
    Published {
        source: cite!("NVIDIA Tesla P100, V100 and T4 data sheets, maximum power consumption"),
        boards: &[
            ("Tesla P100-PCIE-16GB", 250),
            ("Tesla V100-SXM2-16GB", 300),
            ("Tesla V100-PCIE-16GB", 250),
            ("Tesla V100-SXM2-32GB", 300),
            ("Tesla V100-PCIE-32GB", 250),
            ("Tesla T4", 70),
        ],
    },
    Published {
        source: cite!("NVIDIA A, L, H and HGX B200 data sheets, maximum thermal design power"),
        boards: &[
            ("A100-SXM4-40GB", 400),
            ("A100-PCIE-40GB", 250),
            ("A100-SXM4-80GB", 400),
            ("A100 80GB PCIe", 300),
            ("A30", 165),
            ("A10", 150),
            ("A40", 300),
            ("L4", 72),
            ("L40", 300),
            ("L40S", 350),
            ("H100 80GB HBM3", 700),
            ("H100 PCIe", 350),
            ("H100 NVL", 400),
            ("H200", 700),
            ("B200", 1000),
        ],
    },
    Published {
        source: cite!("limit that nvidia-smi prints in public logs of AWS g5 instances"),
        boards: &[("A10G", 300)],
    },
];

/// The power limit of a board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoardPower {
    /// The limit in watts.
    pub watts: u16,
    /// The specifications that state it.
    pub source: &'static str,
}

impl Device {
    /// Power limit of the board. `None` for laptops, custom devices and boards without a published figure.
    #[must_use]
    pub fn board_power(&self) -> Option<BoardPower> {
        PUBLISHED.iter().find_map(|Published { source, boards }| {
            let (_, watts) = boards.iter().find(|(name, _)| *name == self.name)?;
            Some(BoardPower { watts: *watts, source })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ComputeCapability, Segment, by_popularity, devices, find};
    use super::*;

    /// Boards outside laptops without a published figure.
    const UNKNOWN: [&str; 1] = ["GB200"];

    #[test]
    fn every_board_has_a_power_limit_and_no_laptop_has() {
        for (segment, device) in by_popularity() {
            let is_known = segment != Segment::Laptop && !UNKNOWN.contains(&&*device.name);
            assert_eq!(device.board_power().is_some(), is_known, "{}", device.name);
        }
        assert_eq!(Device::custom(24 << 30, ComputeCapability::new(8, 9)).board_power(), None);
    }

    #[test]
    fn every_limit_belongs_to_one_device_and_has_a_source() {
        let mut names: Vec<&str> = Vec::new();
        for Published { source, boards } in &PUBLISHED {
            assert!(!source.is_empty(), "{boards:?}");
            names.extend(boards.iter().map(|(name, _)| *name));
        }
        let n_rows = names.len();
        assert!(names.iter().all(|name| devices().iter().any(|device| device.name == *name)), "{names:?}");
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), n_rows);
    }

    #[test]
    fn limits_are_those_of_the_data_sheets() {
        for (name, watts) in [
            ("1080 Ti", 250),
            ("3060 12GB", 170),
            ("4070", 200),
            ("4090", 450),
            ("5090", 575),
            ("RTX A6000", 300),
            ("T4", 70),
            ("L4", 72),
            ("A100 80GB PCIe", 300),
            ("H100 SXM", 700),
        ] {
            let device = find(name).expect(name);
            assert_eq!(device.board_power().map(|power| power.watts), Some(watts), "{name}");
        }
    }

    #[test]
    fn more_multiprocessors_of_a_generation_take_no_less_power_within_geforce() {
        let boards = |prefix: &str| -> Vec<&Device> {
            devices().iter().filter(|row| row.name.starts_with(prefix) && row.board_power().is_some()).collect()
        };
        for prefix in ["GeForce GTX 10", "GeForce RTX 30", "GeForce RTX 40", "GeForce RTX 50"] {
            let boards = boards(prefix);
            assert!(boards.len() > 5, "{prefix}");
            for (one, other) in boards.iter().flat_map(|one| boards.iter().map(move |other| (one, other))) {
                let watts = |row: &Device| row.board_power().map(|power| power.watts);
                assert!(
                    one.sm_count >= other.sm_count || watts(one) <= watts(other),
                    "{} and {}",
                    one.name,
                    other.name
                );
            }
        }
    }
}
