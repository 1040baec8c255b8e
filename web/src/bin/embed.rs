//! The embedded calculator, and the page that generates the HTML to embed it.

fn main() {
    headroom_web::embed();
}
