//! The start page.

fn main() {
    headroom_web::start();
}
