//! A reading that a card gave, or the reason why there is none; never 0 in its place.

use std::{fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{
        Error, IntoDeserializer, MapAccess, SeqAccess, Visitor,
        value::{MapAccessDeserializer, SeqAccessDeserializer},
    },
};

/// A value, or why it is missing: in JSON the value itself, or `{"missing": "not_supported"}`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Reading<T> {
    /// What was read.
    Is(T),
    /// Nothing.
    Missing {
        /// Why.
        missing: Why,
    },
}

/// Why a reading is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// The card does not have it: a GeForce's ECC, a passive card's fan.
    NotSupported,
    /// The system lets only its administrator read it.
    NoPermission,
    /// Windows manages the memory, under WSL and WDDM, and tells no process's share.
    HiddenByWindows,
    /// The card is gone.
    CardLost,
    /// The driver is older than the reading.
    OldDriver,
    /// It was not read yet.
    NotYet,
    /// A process that this system does not show: one of another container, or one that has just ended.
    NotVisible,
    /// The driver answered what no card can have, such as 2^64 bytes or 5000 %.
    Implausible,
    /// The driver failed.
    #[serde(other)]
    Failed,
}

impl<T> Reading<T> {
    /// Nothing, for a reason.
    pub const fn missing(why: Why) -> Self {
        Self::Missing { missing: why }
    }

    /// What was read, if anything was.
    pub const fn get(&self) -> Option<&T> {
        match self {
            Self::Is(value) => Some(value),
            Self::Missing { .. } => None,
        }
    }

    /// Why there is nothing.
    pub const fn why(&self) -> Option<Why> {
        match self {
            Self::Is(_) => None,
            Self::Missing { missing } => Some(*missing),
        }
    }

    /// Another form of the same reading.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Reading<U> {
        match self {
            Self::Is(value) => Reading::Is(change(value)),
            Self::Missing { missing } => Reading::Missing { missing },
        }
    }
}

impl<T> Reading<T> {
    /// What is made of the reading, which may be missing as well.
    pub fn and_then<U>(self, next: impl FnOnce(T) -> Reading<U>) -> Reading<U> {
        match self {
            Self::Is(value) => next(value),
            Self::Missing { missing } => Reading::Missing { missing },
        }
    }
}

impl<T> From<Result<T, Why>> for Reading<T> {
    fn from(result: Result<T, Why>) -> Self {
        match result {
            Ok(value) => Self::Is(value),
            Err(why) => Self::missing(why),
        }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Reading<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Read(PhantomData))
    }
}

/// Reads a value, which is no object, or the object that says why there is none. What serde makes of an untagged enum
/// keeps the whole of it first, which on a page is a great deal of code.
struct Read<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Read<T> {
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
            missing: Why,
        }
        let Missing { missing } = Missing::deserialize(MapAccessDeserializer::new(fields))?;
        Ok(Reading::Missing { missing })
    }
}
