//! The cards of a machine, as the driver tells of them before one is opened.

use std::fmt;

use super::{
    calls::{self, CardAttribute, CardHandle},
    driver::Driver,
    error::CudaError,
};

/// What a card's multiprocessors can, as NVIDIA numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Capability {
    /// 8 of 8.9.
    pub major: u32,
    /// 9 of 8.9.
    pub minor: u32,
}

impl Capability {
    /// The first with bfloat16 and asynchronous copies, which the kernels are made of.
    pub const NEEDED: Self = Self { major: 8, minor: 0 };
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// A card, or an instance of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Card {
    /// As the driver counts, which is not always as NVML does: the fastest first, and of `CUDA_VISIBLE_DEVICES` alone.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// As NVML has it, `GPU-…`: by it the two counts are brought together.
    pub uuid: String,
    /// What it can.
    pub capability: Capability,
    /// The whole of its memory.
    pub total_bytes: u64,
    /// Its multiprocessors.
    pub multiprocessors: u32,
    /// Shared memory that a block can have, where its kernel asks for more than the usual 48 KiB.
    pub shared_bytes_max: u64,
}

impl Card {
    pub(super) fn read(index: u32, handle: CardHandle) -> Result<Self, CudaError> {
        Ok(Self {
            index,
            name: handle.name()?,
            uuid: uuid(handle.uuid()?),
            capability: Capability {
                major: handle.attribute(CardAttribute::CapabilityMajor)?,
                minor: handle.attribute(CardAttribute::CapabilityMinor)?,
            },
            total_bytes: handle.total_bytes()?,
            multiprocessors: handle.attribute(CardAttribute::Multiprocessors)?,
            shared_bytes_max: u64::from(handle.attribute(CardAttribute::SharedBytesMax)?),
        })
    }

    /// Refuses what the kernels cannot run on.
    ///
    /// # Errors
    /// [`CudaError::CardTooOld`].
    pub fn check(&self) -> Result<(), CudaError> {
        if self.capability < Capability::NEEDED {
            return Err(CudaError::CardTooOld { name: self.name.clone(), capability: self.capability });
        }
        Ok(())
    }
}

/// The cards that the driver shows, those too that are too old.
///
/// # Errors
/// There is no driver, it is too old, or it shows none.
pub fn cards() -> Result<Vec<Card>, CudaError> {
    Driver::get()?;
    let n_cards = calls::n_cards()?;
    let cards: Vec<_> =
        (0..n_cards).map(|index| Card::read(index, CardHandle::get(index)?)).collect::<Result<_, _>>()?;
    if cards.is_empty() { Err(CudaError::NoCard) } else { Ok(cards) }
}

/// The card of a number.
pub(super) fn card(index: u32) -> Result<(Card, CardHandle), CudaError> {
    let n_cards = calls::n_cards()?;
    if n_cards == 0 {
        return Err(CudaError::NoCard);
    }
    if index >= n_cards {
        return Err(CudaError::NoSuchCard { index, n_cards });
    }
    let handle = CardHandle::get(index)?;
    Ok((Card::read(index, handle)?, handle))
}

/// As NVML and nvidia-smi write it.
fn uuid(bytes: [u8; 16]) -> String {
    let mut text = "GPU".to_owned();
    for (place, byte) in bytes.iter().enumerate() {
        if matches!(place, 0 | 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text += &format!("{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_reads_as_nvml_writes_it() {
        let bytes = [0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde, 0xf0, 0, 1, 2, 3, 4, 5, 6, 7];
        assert_eq!(uuid(bytes), "GPU-12345678-9abc-def0-0001-020304050607");
    }

    #[test]
    fn capabilities_are_ordered() {
        let of = |major, minor| Capability { major, minor };
        assert!(of(7, 5) < Capability::NEEDED && of(8, 0) >= Capability::NEEDED && of(12, 0) > of(9, 0));
        assert_eq!(of(8, 9).to_string(), "8.9");
    }
}
