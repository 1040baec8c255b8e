//! Tags of a page for sites that show a preview of its links: title, description and image.

use crate::failure::{Failure, Result};
use std::env;

/// Variable with the public address of the pages.
const ADDRESS: &str = "HEADROOM_PAGE_URL";

/// An image that stands for a page.
#[derive(Debug, Clone, Copy)]
pub struct Image<'a> {
    /// Its path in `dist`.
    pub name: &'a str,
    /// Its content in words.
    pub alt: &'a str,
    /// Width and height in pixels.
    pub size: [u32; 2],
}

/// Returns the public address of the pages, with a slash at its end; empty if none is set.
pub fn address() -> Result<String> {
    let address = env::var(ADDRESS).unwrap_or_default();
    checked(&address).ok_or_else(|| {
        Failure::new(format!("cannot use the address `{address}` of {ADDRESS}"))
            .hint("it is the folder of the pages, such as https://example.org/headroom/")
    })
}

fn checked(address: &str) -> Option<String> {
    if address.is_empty() {
        return Some(String::new());
    }
    let host = address.strip_prefix("https://").or_else(|| address.strip_prefix("http://"))?;
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "-._~:/[]%@!$*+,;=".contains(char);
    let is_url = host.starts_with(|char: char| char.is_ascii_alphanumeric() || char == '[');
    (is_url && host.chars().all(is_plain)).then(|| format!("{}/", address.trim_end_matches('/')))
}

/// Returns the tags for the page with this HTML. Without an `address`, the image's address is relative.
///
/// There is no `og:url`: sites would replace a shared link by it and lose the run after the `#`.
pub fn tags(html: &str, image: Image<'_>, address: &str) -> Result<String> {
    let between = |start: &str, end: &str| Some(html.split_once(start)?.1.split_once(end)?.0.trim());
    let missing = |what: &str| Failure::new(format!("a page has no {what}"));
    let title = between("<title>", "</title>").ok_or_else(|| missing("title"))?;
    let description = between("name=\"description\"", "/>").and_then(|rest| rest.strip_prefix("content=\""));
    let description =
        description.and_then(|rest| rest.strip_suffix('"')).ok_or_else(|| missing("description that ends its tag"))?;
    let Image { name, alt, size: [width, height] } = image;
    let properties = [
        ("title", title),
        ("description", description),
        ("type", "website"),
        ("site_name", "Headroom"),
        ("image", &format!("{address}{name}")),
        ("image:width", &width.to_string()),
        ("image:height", &height.to_string()),
        ("image:alt", alt),
    ];
    let mut out = String::new();
    for (property, content) in properties {
        out.push_str(&format!("<meta property=\"og:{property}\" content=\"{content}\" />"));
    }
    out.push_str("<meta name=\"twitter:card\" content=\"summary_large_image\" />");
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HTML: &str = "<meta\n name=\"description\"\n content=\"What it does.\"\n />\n<title>Headroom: a page</title>";
    const IMAGE: Image<'_> = Image { name: "previews/a.png", alt: "A chart", size: [1200, 630] };

    #[test]
    fn tags_have_the_title_the_description_and_the_image() {
        let tags = tags(HTML, IMAGE, "https://example.org/").expect("tags");
        for tag in [
            "<meta property=\"og:title\" content=\"Headroom: a page\" />",
            "<meta property=\"og:description\" content=\"What it does.\" />",
            "<meta property=\"og:image\" content=\"https://example.org/previews/a.png\" />",
            "<meta property=\"og:image:width\" content=\"1200\" />",
            "<meta property=\"og:image:alt\" content=\"A chart\" />",
        ] {
            assert!(tags.contains(tag), "{tag}: {tags}");
        }
    }

    #[test]
    fn image_is_relative_without_an_address() {
        assert!(tags(HTML, IMAGE, "").expect("tags").contains("content=\"previews/a.png\""));
    }

    #[test]
    fn a_page_without_title_or_description_is_refused() {
        tags("<title>a</title>", IMAGE, "").expect_err("no description");
        tags(&HTML.replace("title>", "h1>"), IMAGE, "").expect_err("no title");
    }

    #[test]
    fn addresses_end_in_one_slash() {
        for (given, used) in [
            ("", Some("")),
            ("https://example.org", Some("https://example.org/")),
            ("http://[::1]:8420/a//", Some("http://[::1]:8420/a/")),
            ("example.org", None),
            ("ftp://example.org", None),
            ("https://", None),
            ("https:///a", None),
            ("https://example.org/\"><script>", None),
            ("https://example.org/?a", None),
            ("https://example.org/#a", None),
        ] {
            assert_eq!(checked(given).as_deref(), used, "{given}");
        }
    }
}
