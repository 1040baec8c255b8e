//! The page that lists the GPUs on which a run fits.

fn main() {
    headroom_web::gpus();
}
