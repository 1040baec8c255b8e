//! The calculator in somebody's page, and the page that writes the lines for that.

fn main() {
    headroom_web::embed();
}
