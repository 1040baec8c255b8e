//! Runs that the agent starts: which may be started, how they were started, and their checkpoints.

use serde::{Deserialize, Serialize};

use crate::message::{self, Message};

/// What may be started on this rig. Requests can name only these items.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Training {
    /// Why nothing can be started, as a sentence for the rig's owner; `None` if something can.
    #[serde(flatten, with = "message::unavailable")]
    pub unavailable: Option<Message>,
    /// Allowed configs by name, the built-in config first.
    pub configs: Vec<AllowedConfig>,
    /// Allowed data sets by name.
    pub datasets: Vec<String>,
    /// Devices, default first. Devices that cannot train come last.
    pub devices: Vec<Device>,
}

/// A config that the owner allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllowedConfig {
    /// The config's name, as used in an [`RunRequest`].
    pub name: String,
    /// The data set that the config names, if it is allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dataset: Option<String>,
    /// The device that the config names, if it is one of [`Training::devices`] and can train.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// `max_iters` of the config.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_iters: Option<u64>,
}

/// A training device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Name for `headroom train --device=`, such as `cpu` or `cuda:0`.
    pub name: String,
    /// Display name: the GPU's product name.
    pub label: String,
    /// Why the device cannot train, as an English sentence.
    #[serde(flatten, with = "message::unavailable")]
    pub unavailable: Option<Message>,
}

/// A request to start a run: the body of `POST /api/runs`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRequest {
    /// The config, as [`AllowedConfig::name`].
    pub config: String,
    /// The data set, as in [`Training::datasets`]; defaults to the config's data set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dataset: Option<String>,
    /// The device, as [`Device::name`]; defaults to the config's device, then to the first device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// The run's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// A checkpoint that the agent stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Number of completed iterations.
    pub iter: u64,
    /// Length of the file in bytes.
    pub bytes: u64,
}
