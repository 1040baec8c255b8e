//! What the host says of every state that a driver, a card or a kernel can be in. A process has one driver and, after a
//! fault, no card any longer: each test plays its scenario in a process of its own.

mod cards;
mod child;
mod cublaslt;
mod cudnn;
mod drivers;
mod faults;
mod graphs;
mod kept;
mod memory;
