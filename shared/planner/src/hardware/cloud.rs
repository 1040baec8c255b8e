//! Rented and free machines, by the names that notebooks and clouds use.
//!
//! Sources: the accelerators in Colab's and Kaggle's settings, and the instance types of AWS, Google Cloud and Azure.

/// A machine of a notebook or a cloud.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CloudGpu {
    /// Common name of the machine.
    pub label: &'static str,
    /// Name of its GPU in the table.
    pub device: &'static str,
    /// Number of GPUs.
    pub n_gpus: u64,
}

const fn rented(label: &'static str, device: &'static str, n_gpus: u64) -> CloudGpu {
    CloudGpu { label, device, n_gpus }
}

/// The machines, free ones first.
pub const CLOUD_GPUS: [CloudGpu; 15] = [
    rented("Colab T4", "Tesla T4", 1),
    rented("Kaggle T4 x2", "Tesla T4", 2),
    rented("Kaggle P100", "Tesla P100-PCIE-16GB", 1),
    rented("Colab L4", "L4", 1),
    rented("Colab A100", "A100-SXM4-40GB", 1),
    rented("AWS g4dn", "Tesla T4", 1),
    rented("AWS g5", "A10G", 1),
    rented("AWS g6", "L4", 1),
    rented("AWS g6e", "L40S", 1),
    rented("AWS p3", "Tesla V100-SXM2-16GB", 1),
    rented("AWS p4d", "A100-SXM4-40GB", 8),
    rented("AWS p5", "H100 80GB HBM3", 8),
    rented("Google Cloud G2", "L4", 1),
    rented("Google Cloud A2", "A100-SXM4-40GB", 1),
    rented("Azure NCasT4 v3", "Tesla T4", 1),
];

#[cfg(test)]
mod tests {
    use super::super::devices;
    use super::*;

    #[test]
    fn every_machine_names_a_device_of_the_table() {
        for machine in &CLOUD_GPUS {
            assert!(devices().iter().any(|device| device.name == machine.device), "{}", machine.label);
            assert!(machine.n_gpus > 0);
        }
    }
}
