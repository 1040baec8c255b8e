//! The form that texts are written in, and the one they are fetched in. The build script reads it too.

/// One text of a language's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The pages that fetch it: the words of its section.
    pub pages: Vec<&'a str>,
    /// Its name.
    pub name: &'a str,
    /// Its arguments, in the order they are given.
    pub arguments: Vec<&'a str>,
    /// The text, with the arguments' names in braces.
    pub text: &'a str,
}

/// Reads a language's file.
///
/// # Errors
/// A line that is neither empty, a comment, a section nor a text; it is named.
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

/// A text with its arguments' numbers in the place of their names: `{card}` becomes `{1}`.
///
/// # Errors
/// A brace that is not closed, or a name that is none of the arguments.
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
