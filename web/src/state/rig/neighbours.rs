//! Links to the user's other rigs, kept in the browser. Each has its own page and token: a page sends no requests to
//! another origin.

/// The most links.
pub const NEIGHBOURS_MAX: usize = 32;
/// The most characters of an address.
const ADDRESS_CHARS_MAX: usize = 200;
/// An agent's default port.
const PORT: &str = "8420";

/// Converts a typed address to a link to a rig's page; `None` if it is invalid.
pub fn link(typed: &str) -> Option<String> {
    let typed = typed.trim();
    let (scheme, rest) = match typed.split_once("://") {
        Some((scheme @ ("http" | "https"), rest)) => (scheme, rest),
        Some(_) => return None,
        None => ("http", typed),
    };
    let host = rest.split(['/', '#', '?']).next().unwrap_or_default();
    let is_host = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
    if host.is_empty()
        || host.len() > ADDRESS_CHARS_MAX
        || !host.chars().all(is_host)
        || !host.contains(char::is_alphanumeric)
    {
        return None;
    }
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']')) || scheme == "https";
    let port = if has_port { String::new() } else { format!(":{PORT}") };
    Some(format!("{scheme}://{host}{port}/rig"))
}

/// The name of a link.
pub fn name(link: &str) -> &str {
    let host = link.split_once("://").map_or(link, |(_, rest)| rest);
    host.trim_end_matches("/rig")
}

/// Parses the stored links; invalid ones are skipped.
pub fn read(kept: &str) -> Vec<String> {
    kept.lines().filter_map(link).take(NEIGHBOURS_MAX).collect()
}

/// Adds a link; false if it is a duplicate or there are too many.
pub fn add(links: &mut Vec<String>, link: String) -> bool {
    let is_new = !links.contains(&link) && links.len() < NEIGHBOURS_MAX;
    if is_new {
        links.push(link);
    }
    is_new
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_completed() {
        for (typed, expected) in [
            ("rig", "http://rig:8420/rig"),
            (" 192.168.1.7:9000 ", "http://192.168.1.7:9000/rig"),
            ("https://rig.tail1234.ts.net/", "https://rig.tail1234.ts.net/rig"),
            ("http://[fd00::1]/x?y#z", "http://[fd00::1]:8420/rig"),
        ] {
            assert_eq!(link(typed).as_deref(), Some(expected));
            assert_eq!(link(expected).as_deref(), Some(expected), "stored links are read back");
        }
        for none in ["", "javascript:alert(1)", "ftp://x", "a b", "http://", "http://\"><script>", "::"] {
            assert_eq!(link(none), None, "{none}");
        }
        assert_eq!(name("http://rig:8420/rig"), "rig:8420");
    }

    #[test]
    fn the_list_has_each_once_and_is_bounded() {
        let mut links = read("http://a:1/rig\nnonsense here\nhttp://b:1/rig\n");
        assert_eq!(links.len(), 2);
        assert!(!add(&mut links, "http://a:1/rig".to_owned()));
        for n in 0..100 {
            add(&mut links, format!("http://h{n}:1/rig"));
        }
        assert_eq!(links.len(), NEIGHBOURS_MAX);
        assert_eq!(read(&links.join("\n")), links);
    }
}
