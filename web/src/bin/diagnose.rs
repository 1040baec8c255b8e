//! The page that explains an out-of-memory message.

fn main() {
    headroom_web::diagnose();
}
