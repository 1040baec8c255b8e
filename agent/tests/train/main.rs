//! `headroom train` as a person starts it.

mod cpu;
mod cuda;
mod folders;
mod inputs;
mod libraries;
mod planned;
mod started;
