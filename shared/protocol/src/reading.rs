//! A reading of a GPU or the machine, or the reason why it is missing. A missing reading is never 0.

use std::{fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{
        Error, IntoDeserializer, MapAccess, SeqAccess, Visitor,
        value::{MapAccessDeserializer, SeqAccessDeserializer},
    },
};

/// A value or the reason why it is missing. In JSON: the value itself, or `{"missing": "not_supported"}`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Reading<T> {
    /// The value.
    Is(T),
    /// The reading is missing.
    Missing {
        /// The reason.
        missing: MissingReason,
    },
}

/// Why a reading is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MissingReason {
    /// The GPU does not support the reading, such as ECC on a GeForce or the fan of a passively cooled GPU.
    NotSupported,
    /// Only the system's administrator may read the value.
    NoPermission,
    /// Windows manages the memory, under WSL and WDDM, and does not report memory per process.
    HiddenByWindows,
    /// The GPU is lost.
    #[serde(rename = "card_lost")]
    GpuLost,
    /// The driver is too old for the reading.
    OldDriver,
    /// The value has not been read yet.
    NotYet,
    /// The process is not visible on this system: it is in another container, or has just ended.
    NotVisible,
    /// The driver returned an impossible value, such as 2^64 bytes or 5000 %.
    Implausible,
    /// The driver failed.
    #[serde(other)]
    Failed,
}

impl<T> Reading<T> {
    /// Creates a missing reading.
    pub const fn missing(why: MissingReason) -> Self {
        Self::Missing { missing: why }
    }

    /// Returns the value, if any.
    pub const fn get(&self) -> Option<&T> {
        match self {
            Self::Is(value) => Some(value),
            Self::Missing { .. } => None,
        }
    }

    /// Returns the reason why the value is missing.
    pub const fn why(&self) -> Option<MissingReason> {
        match self {
            Self::Is(_) => None,
            Self::Missing { missing } => Some(*missing),
        }
    }

    /// Applies a function to the value.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Reading<U> {
        match self {
            Self::Is(value) => Reading::Is(change(value)),
            Self::Missing { missing } => Reading::Missing { missing },
        }
    }
}

impl<T> Reading<T> {
    /// Applies a function that itself returns a reading.
    pub fn and_then<U>(self, next: impl FnOnce(T) -> Reading<U>) -> Reading<U> {
        match self {
            Self::Is(value) => next(value),
            Self::Missing { missing } => Reading::Missing { missing },
        }
    }
}

/// A reading that a message lacks: an older agent does not send it.
impl<T> Default for Reading<T> {
    fn default() -> Self {
        Self::missing(MissingReason::NotYet)
    }
}

impl<T> From<Result<T, MissingReason>> for Reading<T> {
    fn from(result: Result<T, MissingReason>) -> Self {
        match result {
            Ok(value) => Self::Is(value),
            Err(why) => Self::missing(why),
        }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Reading<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(DeserializedReading(PhantomData))
    }
}

/// Deserializer for a reading: a value that is not an object, or the object with the reason. The derived code for an
/// untagged enum buffers the whole input first, which adds much code to the page.
struct DeserializedReading<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for DeserializedReading<T> {
    type Value = Reading<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a reading, or why it is missing")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Reading<T>, E> {
        T::deserialize(value.into_deserializer()).map(Reading::Is)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Reading<T>, E> {
        T::deserialize(value.into_deserializer()).map(Reading::Is)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Reading<T>, E> {
        T::deserialize(value.into_deserializer()).map(Reading::Is)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Reading<T>, E> {
        T::deserialize(value.into_deserializer()).map(Reading::Is)
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Reading<T>, E> {
        T::deserialize(value.into_deserializer()).map(Reading::Is)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, values: A) -> Result<Reading<T>, A::Error> {
        T::deserialize(SeqAccessDeserializer::new(values)).map(Reading::Is)
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<Reading<T>, A::Error> {
        #[derive(Deserialize)]
        struct Missing {
            missing: MissingReason,
        }
        let Missing { missing } = Missing::deserialize(MapAccessDeserializer::new(fields))?;
        Ok(Reading::Missing { missing })
    }
}
