//! Tests of `headroom train` from the command line.

mod cpu;
mod cuda;
mod disks;
mod folders;
mod inputs;
mod libraries;
mod planned;
mod resumed;
mod started;
