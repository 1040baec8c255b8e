//! The page of the machine with the GPUs.

fn main() {
    headroom_web::rig();
}
