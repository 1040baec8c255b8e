//! The demo page, which runs a GPT in the browser.

fn main() {
    headroom_web::demo();
}
