//! The traits that every socket implements in addition: access to its descriptor, and `Debug`.

/// Implements `AsFd`, `AsRawFd` and `Debug` for a type through its field that has the descriptor.
/// With `plain`, `Debug` shows that field alone; with `named`, the field under the type's name.
macro_rules! descriptor {
    ($type:ident: $($field:ident).+, plain) => {
        $crate::net::descriptor::descriptor!($type: $($field).+);

        impl std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Debug::fmt(self.$($field).+.get_ref(), f)
            }
        }
    };
    ($type:ident: $($field:ident).+, named) => {
        $crate::net::descriptor::descriptor!($type: $($field).+);

        impl std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_tuple(stringify!($type)).field(&self.$($field).+.get_ref()).finish()
            }
        }
    };
    ($type:ident: $($field:ident).+) => {
        impl std::os::fd::AsFd for $type {
            fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
                std::os::fd::AsFd::as_fd(&self.$($field).+)
            }
        }

        impl std::os::fd::AsRawFd for $type {
            fn as_raw_fd(&self) -> std::os::fd::RawFd {
                std::os::fd::AsRawFd::as_raw_fd(&self.$($field).+)
            }
        }
    };
}

pub(crate) use descriptor;
