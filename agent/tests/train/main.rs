//! `headroom train` as a person starts it.

mod cpu;
mod cuda;
mod planned;
mod started;
