//! Shared links: the tags, icons and images that other sites read.

use crate::environment::named;
use std::fs;

const PAGES: [&str; 6] = ["index", "diagnose", "gpus", "demo", "rig", "embed"];

/// Returns the value of an attribute of the first tag that contains `words`.
fn attribute<'a>(html: &'a str, words: &str, name: &str) -> Option<&'a str> {
    let tag = html.split('<').find(|tag| tag.contains(words))?;
    tag.split_once(&format!("{name}=\""))?.1.split('"').next()
}

/// Returns width and height from the header of a PNG file.
fn size_of(png: &[u8]) -> [u32; 2] {
    assert!(png.starts_with(b"\x89PNG\r\n\x1a\n"), "{:x?}", &png[..8]);
    [16, 20].map(|at| u32::from_be_bytes(png[at..at + 4].try_into().expect("four bytes")))
}

#[test]
fn every_page_has_tags_and_an_image_for_shared_links() {
    let Some(dist) = named("every_page_has_tags_and_an_image_for_shared_links", "HEADROOM_DIST") else { return };
    for page in PAGES {
        let html = fs::read_to_string(dist.join(format!("{page}.html"))).expect("a page");
        let property = |name: &str| {
            let found = attribute(&html, &format!("meta property=\"og:{name}\""), "content");
            found.unwrap_or_else(|| panic!("{page} has no og:{name}"))
        };
        let title = html.split("<title>").nth(1).and_then(|rest| rest.split("</title>").next());
        assert_eq!(Some(property("title")), title, "{page}");
        assert_eq!(Some(property("description")), attribute(&html, "name=\"description\"", "content"), "{page}");
        assert_eq!((property("type"), property("site_name")), ("website", "Headroom"));
        assert!(property("image:alt").len() > 20, "{page}");
        assert!(attribute(&html, "summary_large_image", "name").is_some_and(|name| name.starts_with("twitter:")));
        let image = property("image");
        let file = &image[image.find("previews/").unwrap_or_else(|| panic!("{page}: {image}"))..];
        let png = fs::read(dist.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        let declared = ["image:width", "image:height"].map(|name| property(name).parse::<u32>().expect("a number"));
        assert_eq!(size_of(&png), declared, "{page}");
        assert_eq!(declared, [1200, 630]);
        // A site would replace a shared link by this address and lose the run after the `#`.
        assert!(!html.contains("og:url"), "{page}");

        let icon = attribute(&html, "rel=\"icon\"", "href").expect("an icon");
        assert!(fs::read_to_string(dist.join(icon)).expect("an icon").starts_with("<svg "), "{page}");
        let icon = attribute(&html, "rel=\"apple-touch-icon\"", "href").expect("an icon");
        assert_eq!(size_of(&fs::read(dist.join(icon)).expect("an icon")), [180, 180], "{page}");
    }
    for page in ["index.html", "guide/plan.html"] {
        let folder = dist.join("docs").join(page);
        let html = fs::read_to_string(&folder).expect("a page of the documentation");
        let icon = attribute(&html, "rel=\"icon\"", "href").expect("an icon");
        assert!(folder.parent().expect("a folder").join(icon).is_file(), "{page}: {icon}");
    }
}
