//! Parser for the source format of texts, and encoder for the fetched format.

/// An entry of a language's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Pages that fetch the text: the words of its section heading.
    pub pages: Vec<&'a str>,
    /// Name of the text.
    pub name: &'a str,
    /// Names of the arguments, in their order.
    pub arguments: Vec<&'a str>,
    /// The text, with argument names in braces.
    pub text: &'a str,
}

/// Parses a language's file.
///
/// # Errors
/// A line is neither empty, a comment, a section nor a text. The error contains the line.
pub fn entries(source: &str) -> Result<Vec<Entry<'_>>, String> {
    let mut pages = Vec::new();
    let mut entries = Vec::new();
    for (index, line) in source.lines().enumerate() {
        let fault = |what: &str| format!("line {}: {what}: {line}", index + 1);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(section) = line.strip_prefix('[') {
            pages = section.trim_end_matches(']').split(' ').collect();
            continue;
        }
        let (head, text) = line.split_once(" = ").ok_or_else(|| fault("there is no ` = `"))?;
        let (name, arguments) = match head.split_once('(') {
            Some((name, arguments)) => (name, arguments.trim_end_matches(')').split(", ").collect()),
            None => (head, vec![]),
        };
        if name.is_empty() || text.trim() != text || text.is_empty() {
            return Err(fault("a name and a text are wanted, without blanks around them"));
        }
        entries.push(Entry { pages: pages.clone(), name, arguments, text });
    }
    Ok(entries)
}

/// Replaces the argument names in a text by their numbers: `{gpu}` becomes `{1}`.
///
/// # Errors
/// A brace is not closed, or a name is not an argument.
pub fn numbered(text: &str, arguments: &[&str]) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('{') {
        let (inside, after) = behind.split_once('}').ok_or_else(|| format!("a brace is not closed: {text}"))?;
        let (name, forms) = inside.split_once(':').map_or((inside, None), |(name, forms)| (name, Some(forms)));
        let number = arguments.iter().position(|argument| *argument == name);
        let number = number.ok_or_else(|| format!("{{{name}}} is no argument: {text}"))?;
        out.push_str(before);
        match forms {
            Some(forms) if forms.split('|').count() != 2 => return Err(format!("two forms are wanted: {text}")),
            Some(forms) => out.push_str(&format!("{{{number}:{forms}}}")),
            None => out.push_str(&format!("{{{number}}}")),
        }
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}
