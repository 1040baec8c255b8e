//! The page that replays recordings.

fn main() {
    headroom_web::replay();
}
