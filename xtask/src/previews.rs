//! `cargo xtask previews`: the images that sites show with a link to a page, and the icons, drawn by Chromium.
//!
//! Each image of a page holds the digest of its HTML, so that a test finds one whose figures have changed.

mod drawing;
mod pictures;

use crate::{
    browser,
    failure::{Failure, IoContext, Result},
    files, png,
    shell::{Shell, note, step},
};
use pictures::{Picture, SIZE};
use sha2::{Digest, Sha256};
use std::{fs, path::Path};

/// Folder of the images, relative to the workspace.
const FOLDER: &str = "web/previews";
/// Folder of the icons, relative to the workspace.
const ICONS: &str = "web/icons";
const ICON: &str = include_str!("../../web/icons/icon.svg");
/// Text chunk with the digest of an image's HTML.
const DIGEST: &str = "Source";
/// Icons by edge, and the edge of the drawing in them, in pixels. Phones cut icons to a circle of 80 % of the edge.
const ICON_SIZES: [(u32, u32); 3] = [(180, 160), (192, 144), (512, 400)];
/// Background of the icon.
const ICON_COLOUR: &str = "#131416";

/// Draws all images.
pub fn run(shell: &Shell) -> Result<()> {
    let browser = browser::ensure(shell)?;
    let folder = shell.target.join("xtask/previews");
    files::remake(&folder)?;
    let draw = |name: &str, html: &str, size: [u32; 2]| draw(shell, &browser.chromium, &folder, name, html, size);
    step("draw the previews", "each page's image for shared links", || {
        for picture in pictures::all()? {
            let png = draw(picture.page, &picture.html(&icon_address())?, SIZE)?;
            let png = png::with_text(&png, DIGEST, &digest(&picture)?)
                .ok_or_else(|| Failure::new("Chromium wrote no PNG file"))?;
            write(&shell.root.join(FOLDER).join(format!("{}.png", picture.page)), &png)?;
        }
        Ok(())
    })?;
    step("draw the icons", "for phones, which read no SVG", || {
        for (edge, drawing) in ICON_SIZES {
            let png = draw(&format!("icon-{edge}"), &icon_page(drawing), [edge, edge])?;
            write(&shell.root.join(ICONS).join(format!("icon-{edge}.png")), &png)?;
        }
        Ok(())
    })
}

fn write(file: &Path, png: &[u8]) -> Result<()> {
    note(&format!("{}: {} bytes", file.display(), png.len()));
    fs::write(file, png).doing(|| format!("write {}", file.display()))
}

fn draw(shell: &Shell, chromium: &Path, folder: &Path, name: &str, html: &str, size: [u32; 2]) -> Result<Vec<u8>> {
    let (page, image) = (folder.join(format!("{name}.html")), folder.join(format!("{name}.png")));
    fs::write(&page, html).doing(|| format!("write {}", page.display()))?;
    let [width, height] = size;
    let (output, _) = shell
        .cmd(chromium.display().to_string())
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-lcd-text"])
        .args(["--force-color-profile=srgb", "--force-device-scale-factor=1"])
        .args([format!("--window-size={width},{height}"), format!("--screenshot={}", image.display())])
        .args([format!("file://{}", page.display())])
        .capture()?;
    let png = fs::read(&image).doing(|| format!("read the image; Chromium printed:\n{output}"))?;
    match png::size(&png) {
        Some(drawn) if drawn == size => {
            png::compact(&png).ok_or_else(|| Failure::new(format!("cannot read {}", image.display())))
        }
        drawn => Err(Failure::new(format!("Chromium drew {name} in {drawn:?} pixels instead of {size:?}"))),
    }
}

/// Returns the icon as an address in HTML.
fn icon_address() -> String {
    format!("data:image/svg+xml,{}", ICON.trim().replace('#', "%23").replace('"', "'"))
}

/// Returns a page with the icon in its middle, `edge` pixels wide.
fn icon_page(edge: u32) -> String {
    format!(
        "<!doctype html><style>html{{height:100%;background:{ICON_COLOUR}}}body{{display:grid;place-items:center;\
         height:100%;margin:0}}</style><img src=\"{}\" width=\"{edge}\" height=\"{edge}\" alt=\"\">",
        icon_address()
    )
}

/// Returns the digest of an image's HTML.
fn digest(picture: &Picture) -> Result<String> {
    let hash = Sha256::digest(picture.html(&icon_address())?);
    Ok(hash.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::PAGES;

    /// Upper bound of an image in bytes.
    const BYTES_MAX: usize = 60_000;

    fn image(picture: &Picture) -> Vec<u8> {
        let shell = Shell::new().expect("an environment");
        let file = shell.root.join(FOLDER).join(format!("{}.png", picture.page));
        fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
    }

    #[test]
    fn every_page_has_an_image_of_its_size() {
        let pictures = pictures::all().expect("plans");
        let mut pages: Vec<String> = pictures.iter().map(|picture| format!("{}.html", picture.page)).collect();
        pages.sort();
        let mut expected = PAGES.to_vec();
        expected.sort_unstable();
        assert_eq!(pages, expected);
        for picture in &pictures {
            let png = image(picture);
            assert_eq!(png::size(&png), Some(SIZE), "{}", picture.page);
            assert!(png.len() <= BYTES_MAX, "{}: {} bytes", picture.page, png.len());
        }
    }

    #[test]
    fn images_show_the_figures_of_the_planner() {
        for picture in pictures::all().expect("plans") {
            let drawn_from = png::text(&image(&picture), DIGEST).map(str::to_owned);
            let digest = digest(&picture).expect("a template");
            assert_eq!(drawn_from, Some(digest), "{}: run `cargo xtask previews` again", picture.page);
        }
    }

    #[test]
    fn icons_have_their_sizes() {
        let shell = Shell::new().expect("an environment");
        for (edge, _) in ICON_SIZES {
            let png = fs::read(shell.root.join(ICONS).join(format!("icon-{edge}.png"))).expect("an icon");
            assert_eq!(png::size(&png), Some([edge, edge]));
        }
    }
}
