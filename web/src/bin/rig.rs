//! The rig page, which monitors the machine with the GPUs.

fn main() {
    headroom_web::rig();
}
