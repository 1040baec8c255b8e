//! Invitation to pair a device: a link, and a QR code for phones.

use std::io::IsTerminal;

use qrcode::{EcLevel, QrCode, render::unicode::Dense1x2};

use super::style::Style;

/// Address of the page, and the pairing code.
#[derive(Clone, Copy, Debug)]
pub struct Invitation<'a> {
    /// Link for a browser on this machine.
    pub link: &'a str,
    /// Link for other machines, if the page is reachable from there.
    pub far_link: Option<&'a str>,
    /// One-time pairing code.
    pub code: &'a str,
}

impl Invitation<'_> {
    /// Pairing link for this machine.
    pub fn here(&self) -> String {
        self.pair(self.link)
    }

    /// Pairing link. Browsers do not send the part after `#`, so no server or log receives the code.
    fn pair(&self, link: &str) -> String {
        format!("{link}rig#pair={}", self.code)
    }

    /// Instructions for a phone, with a QR code if `draws`.
    pub fn for_phones(&self, draws: bool) -> String {
        let Some(far_link) = self.far_link else {
            return "other devices cannot reach this server: `headroom serve --help` describes the options for that\n"
                .to_owned();
        };
        let link = self.pair(far_link);
        let picture = if draws { picture(&link).unwrap_or_default() } else { String::new() };
        format!("for another device:\n  {link}\n{picture}")
    }
}

/// Whether the terminal can display a QR code of half blocks.
pub fn draws() -> bool {
    std::io::stderr().is_terminal() && Style::of_stdout().unicode
}

/// QR code, light on dark for common terminals. Cameras accept either polarity.
fn picture(link: &str) -> Option<String> {
    let code = QrCode::with_error_correction_level(link, EcLevel::L).ok()?;
    let blocks =
        code.render::<Dense1x2>().dark_color(Dense1x2::Light).light_color(Dense1x2::Dark).quiet_zone(true).build();
    Some(blocks + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairing_code_follows_hash() {
        let invitation = Invitation { link: "http://127.0.0.1:8420/", far_link: None, code: "abc" };
        assert_eq!(invitation.here(), "http://127.0.0.1:8420/rig#pair=abc");
        assert!(invitation.for_phones(true).contains("cannot reach"));
    }

    #[test]
    fn a_picture_fits_a_terminal() {
        let code = "0".repeat(64);
        let far_link = Some("https://a-long-name-of-a-rig.tail12345.ts.net/");
        let invitation = Invitation { link: "http://127.0.0.1:8420/", far_link, code: &code };
        let text = invitation.for_phones(true);
        let picture: Vec<&str> = text.lines().skip(2).collect();
        assert!((20..40).contains(&picture.len()), "{text}");
        assert!(picture.iter().all(|line| line.chars().count() <= 80), "{text}");
        assert!(!invitation.for_phones(false).contains('█'));
    }
}
