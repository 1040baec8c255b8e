//! The page where a GPT runs.

fn main() {
    headroom_web::demo();
}
