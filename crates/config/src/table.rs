//! Tables of the configuration, and the values of the keys that a table does not have.

/// Declares tables: each key with its type, the function that reads it if it is not read as its
/// type is, and its value if the table does not have the key, unless that is the default of its
/// type. Unknown keys are mistakes.
macro_rules! table {
    ($(
        $(#[$meta:meta])*
        $vis:vis struct $table:ident {
            $(
                $(#[$attribute:meta])*
                $key_vis:vis $key:ident: $type:ty $(as $read:literal)? $(= $default:expr)?,
            )+
        }
    )+) => {$(
        $(#[$meta])*
        #[derive(serde::Deserialize)]
        #[serde(default, deny_unknown_fields)]
        $vis struct $table {
            $($(#[$attribute])* $(#[serde(deserialize_with = $read)])? $key_vis $key: $type,)+
        }

        impl Default for $table {
            fn default() -> $table {
                $table { $($key: $crate::table::table!(@default $($default)?),)+ }
            }
        }
    )+};
    (@default $default:expr) => { $default };
    (@default) => { Default::default() };
}

pub(crate) use table;
