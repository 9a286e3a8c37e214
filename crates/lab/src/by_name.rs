//! What is chosen by its name is told from others by it, and shown as it.

/// `Debug` and `PartialEq` of a type by its field `name`.
macro_rules! by_name {
    ($type:ident) => {
        impl std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name)
            }
        }

        impl PartialEq for $type {
            fn eq(&self, other: &$type) -> bool {
                self.name == other.name
            }
        }
    };
}

pub(crate) use by_name;
