//! The calculator of trainers other than nanoGPT.

fn main() {
    headroom_web::trainers();
}
