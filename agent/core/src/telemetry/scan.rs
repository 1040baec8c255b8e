//! A scan for GPUs that are new, back or gone.

use headroom_protocol::{message::Message, reading::MissingReason};
use nvml_wrapper::Device;

use super::{
    TelemetryEvent, facts,
    gpus::{Address, GPUS_MAX, GpuEntry, GpuTable, INSTANCES_MAX},
    library::Library,
    nvml_errors::{NvmlErrors, NvmlFailure, refused},
    sample,
};

/// A scan in progress.
#[derive(Debug)]
pub struct Scan<'a> {
    library: &'a Library,
    gpus: &'a mut GpuTable,
    seen: Vec<usize>,
    events: Vec<TelemetryEvent>,
    changed: bool,
}

impl<'a> Scan<'a> {
    /// Creates a scan that updates `gpus`.
    pub fn new(library: &'a Library, gpus: &'a mut GpuTable) -> Self {
        Self { library, gpus, seen: Vec::new(), events: Vec::new(), changed: false }
    }

    /// Scans every GPU and every MIG instance; an error is the driver's.
    pub fn all(&mut self, n_gpus: u32) -> Result<(), Message> {
        for gpu in 0..n_gpus.min(u32::try_from(GPUS_MAX).unwrap_or(u32::MAX)) {
            let Some(position) = self.one(Address::Gpu(gpu))? else { continue };
            if self.gpus.entries()[position].gpu.mig_enabled.get() == Some(&true) {
                let device = Address::Gpu(gpu).device(&self.library.nvml);
                let n_instances = device.and_then(|device| device.mig_device_count()).unwrap_or(0);
                for instance in 0..n_instances.min(INSTANCES_MAX) {
                    self.one(Address::Instance { gpu, instance })?;
                }
            }
        }
        Ok(())
    }

    /// Returns the events, and whether the list of GPUs changed.
    pub fn finish(mut self) -> (Vec<TelemetryEvent>, bool) {
        for position in (0..self.gpus.entries().len()).filter(|position| !self.seen.contains(position)) {
            if let Some(uuid) = self.gpus.lose(position) {
                self.events.push(TelemetryEvent::GpuLost(uuid));
                self.changed = true;
            }
        }
        (self.events, self.changed)
    }

    fn one(&mut self, address: Address) -> Result<Option<usize>, Message> {
        let library = self.library;
        match address.device(&library.nvml) {
            Ok(device) => self.answering(&device, address),
            Err(error) => match refused(&error) {
                NvmlFailure::Driver(reason) => Err(reason),
                NvmlFailure::Gpu => {
                    // In a container NVML counts GPUs to which the container has no access.
                    if address.is_gpu() && NvmlErrors::default().why(&error) != MissingReason::NoPermission {
                        self.silent(address);
                    }
                    Ok(None)
                }
            },
        }
    }

    fn answering(&mut self, device: &Device<'_>, address: Address) -> Result<Option<usize>, Message> {
        let mut answers = NvmlErrors::default();
        let uuid = uuid(device, address, &mut answers);
        let Some(position) = self.gpus.find(&uuid, address) else { return Ok(None) };
        let known = self.gpus.entries().get(position);
        if known.is_some_and(|entry| entry.gpu.present) && answers.is_well() {
            self.gpus.move_to(position, address);
            self.seen.push(position);
            return Ok(Some(position));
        }
        let index = u32::try_from(position).unwrap_or(u32::MAX);
        let gpu = facts::read(device, index, uuid.clone(), &mut answers);
        // A GPU is back only when every reading that can report its loss succeeds. Otherwise it would come and go with
        // every scan.
        sample::read(device, &gpu, &mut answers);
        match answers.trouble() {
            Some(NvmlFailure::Driver(reason)) => Err(reason),
            Some(NvmlFailure::Gpu) => {
                self.silent(address);
                Ok(None)
            }
            None => {
                if known.is_some() {
                    self.events.push(TelemetryEvent::GpuRecovered(uuid));
                }
                self.gpus.put(position, GpuEntry { gpu, address, unknown: false });
                self.seen.push(position);
                self.changed = true;
                Ok(Some(position))
            }
        }
    }

    /// Records a GPU that NVML counts and that does not respond. It gets an entry even if it never responded.
    fn silent(&mut self, address: Address) {
        let Address::Gpu(gpu) = address else { return };
        let position = self.gpus.entries().len();
        if !self.gpus.is_known_at(address) && position < GPUS_MAX {
            let gpu = facts::unknown(u32::try_from(position).unwrap_or(u32::MAX), gpu);
            self.events.push(TelemetryEvent::GpuLost(gpu.uuid.clone()));
            self.gpus.put(position, GpuEntry { gpu, address, unknown: true });
            self.changed = true;
        }
    }
}

/// Returns a GPU's persistent name: its UUID, or its PCI address without one.
fn uuid(device: &Device<'_>, address: Address, answers: &mut NvmlErrors) -> String {
    let uuid = answers.reading(device.uuid());
    let pci = || answers.reading(device.pci_info()).get().map(|pci| format!("PCI-{}", pci.bus_id));
    uuid.get().cloned().or_else(pci).unwrap_or_else(|| match address {
        Address::Gpu(gpu) => format!("card-{gpu}"),
        Address::Instance { gpu, instance } => format!("card-{gpu}-{instance}"),
    })
}
