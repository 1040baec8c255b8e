//! `headroom train` as a person starts it.

mod cpu;
mod cuda;
mod libraries;
mod planned;
mod started;
