//! Names of secrets, and forms of secrets that are recognised without a name.

/// Parts of a name that make its value a secret.
const PARTS: [&str; 23] = [
    "passphrase",
    "pass",
    "pwd",
    "secrets",
    "accesskey",
    "secretkey",
    "privatekey",
    "authtoken",
    "accesstoken",
    "bearer",
    "cred",
    "credential",
    "credentials",
    "creds",
    "auth",
    "authorization",
    "cookie",
    "sig",
    "signature",
    "otp",
    "totp",
    "passcode",
    // Knowing the address of a webhook is enough to post to it.
    "webhook",
];
/// Parts that make a value a secret alone or at the end of a longer part, as in `PGPASSWORD`.
const ENDS: [&str; 8] = ["password", "passwords", "passwd", "pass", "pw", "secret", "apikey", "apikeys"];
/// Words that end with `pass` and name no secret.
const NOT_PASSES: [&str; 7] = ["bypass", "compass", "encompass", "lowpass", "highpass", "bandpass", "surpass"];
/// Names that mark a secret before `=`, but are ordinary words before a colon.
const WEAK: [&str; 4] = ["pass", "auth", "sig", "signature"];
/// Words before `token` in names about tokenizers and lengths rather than secrets.
const OF_TOKENIZER: [&str; 21] = [
    "bos", "eos", "pad", "unk", "sep", "cls", "mask", "start", "end", "stop", "special", "new", "per", "next", "max",
    "min", "num", "n", "first", "last", "by",
];
/// Words that end with `key` and name no secret.
const NOT_KEYS: [&str; 4] = ["monkey", "hotkey", "turkey", "whiskey"];

/// Forms of secrets. `before`, `hook` and `call` are groups of text that stays.
pub const FORMS: &[&str] = &[
    // User and password in a URL.
    r"(?P<before>[A-Za-z][A-Za-z0-9+.\-]*://)[^\s/@'\x22]+@",
    // Addresses of webhooks.
    r"(?P<hook>https://(?:hooks\.slack\.com/(?:services|workflows)|discord(?:app)?\.com/api/webhooks)/)[^\s'\x22]+",
    r"(?P<call>login\([^)\n]{0,100}?\bkey[ \t]*=[ \t]*['\x22])[^'\x22\n]+",
    // Cloud providers.
    r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
    r"\bAIza[0-9A-Za-z_\-]{30,}",
    r"\bya29\.[0-9A-Za-z_\-]{16,}",
    r"\bdo[opr]_v1_[a-f0-9]{16,}",
    // Code and packages.
    r"\bgh[pousr]_[A-Za-z0-9]{16,}|\bgithub_pat_[A-Za-z0-9_]{16,}|\bgl(?:pat|ptt|dt|rt)-[A-Za-z0-9_\-]{16,}",
    r"\bnpm_[A-Za-z0-9]{16,}|\bpypi-[A-Za-z0-9_\-]{16,}|\bdckr_pat_[A-Za-z0-9_\-]{16,}",
    // Models and experiments. 40 hexadecimal digits are a key of Weights & Biases.
    r"\b(?:hf|api_org|r8|gsk)_[A-Za-z0-9]{16,}|\bnvapi-[A-Za-z0-9_\-]{16,}|\bsk-[A-Za-z0-9_\-]{16,}",
    r"\bwandb_v1_[A-Za-z0-9_\-]+|\b[0-9a-f]{40}\b",
    // Other services.
    r"\bxox[a-z]-[A-Za-z0-9\-]{10,}|\bxapp-[A-Za-z0-9\-]{10,}|\b(?:sk|rk|whsec)_(?:live_|test_)?[A-Za-z0-9]{16,}",
    r"\bSG\.[A-Za-z0-9_\-]{16,}\.[A-Za-z0-9_\-]{16,}|\bhvs\.[A-Za-z0-9_\-]{16,}|\btskey-[A-Za-z0-9\-]{16,}",
    // JSON web tokens and private keys.
    r"\beyJ[A-Za-z0-9_\-]+\.[A-Za-z0-9_\-]+\.[A-Za-z0-9_\-]*",
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----(?s:.*?)(?:-----END [A-Z ]*PRIVATE KEY-----|\z)",
];

/// String literals at the beginning of a login's arguments, as in `wandb.login('KEY')`.
pub const LOGIN: &str =
    r#"(?P<call>login\([ \t]*)\\*(?:"[^"\n]+"|'[^'\n]+')(?:[ \t]*,[ \t]*\\*(?:"[^"\n]+"|'[^'\n]+'))*"#;

/// What a name implies about its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    /// The value is a secret.
    Secret,
    /// The value is a secret if it looks like a key, or follows an option.
    Key,
    /// The name implies nothing.
    Other,
}

impl Name {
    /// Classifies a name such as `--api-key`, `API_KEY` or `apiKey`.
    pub fn of(name: &str) -> Self {
        let name = name.trim_start_matches('-');
        if matches!(name, "PWD" | "OLDPWD") {
            return Self::Other;
        }
        let parts = parts(name);
        let is_secret = |part: &String| {
            let has_end = ENDS.iter().any(|end| part.ends_with(end)) && !NOT_PASSES.contains(&part.as_str());
            has_end || PARTS.contains(&part.as_str())
        };
        if parts.iter().any(is_secret) {
            return Self::Secret;
        }
        let (last, before) = match parts.as_slice() {
            [before @ .., last] => (last.as_str(), before.last().map(String::as_str)),
            [] => return Self::Other,
        };
        // The word before may be glued, as in `mytoken`.
        let before_token = last.strip_suffix("token").map(|glued| if glued.is_empty() { before } else { Some(glued) });
        match (before_token, last) {
            (Some(before), _) if before.is_none_or(|before| !OF_TOKENIZER.contains(&before)) => Self::Secret,
            // GitHub's and Azure's personal access tokens.
            (_, "key" | "pat") if before.is_some() => Self::Secret,
            // Alone also a tokenizer.
            (_, "tok") if before.is_none_or(|before| !OF_TOKENIZER.contains(&before)) => Self::Key,
            // Alone also a pattern, and the session of a terminal.
            (_, "pat" | "session" | "sessionid") => Self::Key,
            (_, "id") if before == Some("session") => Self::Key,
            (_, last) if last.ends_with("key") && !NOT_KEYS.contains(&last) => Self::Key,
            _ => Self::Other,
        }
    }

    /// Whether a name is an ordinary word before a colon.
    pub fn is_weak(name: &str) -> bool {
        WEAK.contains(&name)
    }
}

/// Returns the words of a name in lower case: `api` and `key` for `--api-key`, `API_KEY` and `apiKey`.
fn parts(name: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut was_lower = false;
    for char in name.chars() {
        let is_end = !char.is_ascii_alphanumeric() || (was_lower && char.is_ascii_uppercase());
        if is_end {
            parts.push(String::new());
        }
        if let Some(part) = parts.last_mut().filter(|_| char.is_ascii_alphanumeric()) {
            part.push(char.to_ascii_lowercase());
        }
        was_lower = char.is_ascii_lowercase();
    }
    parts.retain(|part| !part.is_empty());
    parts
}
