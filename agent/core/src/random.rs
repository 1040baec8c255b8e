//! Random names and secrets.

/// Returns random bytes from the system in hexadecimal digits.
///
/// # Errors
/// The system provides none, for example because it forbids the call.
pub fn hex(n_bytes: usize) -> std::io::Result<String> {
    let mut bytes = vec![0; n_bytes];
    getrandom::fill(&mut bytes).map_err(std::io::Error::other)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    #[test]
    fn no_two_are_alike() {
        let [a, b] = [super::hex(32), super::hex(32)].map(|hex| hex.expect("the system has some"));
        assert_eq!(a.len(), 64);
        assert!(a.bytes().all(|byte| byte.is_ascii_hexdigit()));
        assert_ne!(a, b);
    }
}
