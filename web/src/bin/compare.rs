//! The page that compares two runs.

fn main() {
    headroom_web::compare();
}
