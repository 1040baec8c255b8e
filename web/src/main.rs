//! The calculator.

fn main() {
    headroom_web::budget();
}
