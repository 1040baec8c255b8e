//! The page's entry point; a placeholder that proves the build, until the real pages arrive.

use leptos::prelude::*;

fn main() {
    mount_to_body(|| view! { <h1>"Headroom"</h1> });
}
