//! The page that explains out-of-memory messages.

fn main() {
    headroom_web::diagnose();
}
