//! The C library that this process runs with.

/// Its name and version; empty where it does not tell.
#[cfg(target_env = "gnu")]
pub(crate) fn version() -> String {
    // SAFETY: the call takes nothing and returns a string that ends with a zero and lasts as long
    // as the process.
    let version = unsafe { std::ffi::CStr::from_ptr(libc::gnu_get_libc_version()) };
    format!("glibc {}", version.to_string_lossy())
}

/// Its name and version; empty where it does not tell.
#[cfg(not(target_env = "gnu"))]
pub fn version() -> String {
    String::new()
}

#[cfg(all(test, target_env = "gnu"))]
mod tests {
    #[test]
    fn it_tells() {
        let version = super::version();
        assert!(version.starts_with("glibc 2."), "{version}");
    }
}
