//! Runs that the agent starts itself: what may be started, what was, and what is left of it.

use serde::{Deserialize, Serialize};

/// What may be started on this rig: nothing else can be named from outside.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Training {
    /// Why nothing can be started, in a sentence for the rig's owner; none where something can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unavailable: Option<String>,
    /// Configs by their names, the built-in one first.
    pub configs: Vec<AllowedConfig>,
    /// Data sets by their names.
    pub datasets: Vec<String>,
    /// What can train, the one that is taken where none is named first; behind the last that can, those that cannot.
    pub devices: Vec<Device>,
}

/// A config that the owner allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllowedConfig {
    /// Its name, which an order gives.
    pub name: String,
    /// The data set that it names, where that is an allowed one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dataset: Option<String>,
    /// The device that it names, where that is one of [`Training::devices`] that can train.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Its `max_iters`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_iters: Option<u64>,
}

/// Something that trains.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// As `headroom train --device=` takes it: `cpu`, `cuda:0`.
    pub name: String,
    /// What a person calls it: the card's name.
    pub label: String,
    /// Why it cannot train: a sentence, in English.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unavailable: Option<String>,
}

/// What a run is started with: the body of `POST /api/runs`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// The config's name, as [`AllowedConfig::name`].
    pub config: String,
    /// The data set's, as [`Training::datasets`]; the config's own where none is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dataset: Option<String>,
    /// The device's, as [`Device::name`]; the config's own where none is named, or else the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// What the run is called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// A checkpoint that the agent has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Iterations that were done.
    pub iter: u64,
    /// The file's length.
    pub bytes: u64,
}
