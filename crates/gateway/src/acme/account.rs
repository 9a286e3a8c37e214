//! The account at a certificate authority: one for each directory, made when it is first needed.

use data_encoding::{BASE64URL, BASE64URL_NOPAD};
use instant_acme::{Account, AccountCredentials, Error, ExternalAccountKey, NewAccount};
use serde::{Deserialize, Serialize};
use superpoll_rt::time::sleep;

use super::http::CaClient;
use super::order::{Failure, NONCES, is, write};
use super::storage::{LOCK_PAUSE, Storage};
use crate::automatic_error::{Damage, StorageError};
use crate::config::{Acme, ExternalAccount};

const FILE: &str = "account.json";

/// An account as it is stored.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AccountRecord {
    directory: String,
    email: String,
    credentials: AccountCredentials,
}

/// Returns the account that is stored, as a text; `None` if there is none.
fn stored(acme: &Acme, storage: &Storage) -> Result<Option<AccountRecord>, StorageError> {
    let Some(text) = storage.read(FILE)? else { return Ok(None) };
    let path = storage.path(FILE);
    match serde_json::from_str::<AccountRecord>(&text) {
        Err(error) => Err(StorageError::no_json(&path, "account", &error)),
        Ok(record) if record.directory != acme.directory => {
            Err(StorageError::damaged(&path, Damage::OtherDirectory(record.directory)))
        }
        Ok(record) => Ok(Some(record)),
    }
}

/// Checks the stored account, without the authority.
pub(super) fn check(acme: &Acme, storage: &Storage) -> Result<(), StorageError> {
    stored(acme, storage).map(drop)
}

/// Reads the key of an account that a customer has at the authority.
fn external(account: &ExternalAccount) -> Result<ExternalAccountKey, Failure> {
    let path = account.key.display();
    let text = std::fs::read_to_string(&account.key).map_err(|error| {
        Failure::here(format!("reading the key of the account {path}: {error}"))
    })?;
    let text = text.trim();
    let bytes = match text.ends_with('=') {
        true => BASE64URL.decode(text.as_bytes()),
        false => BASE64URL_NOPAD.decode(text.as_bytes()),
    };
    let bytes = bytes
        .map_err(|error| Failure::here(format!("the key in {path} is no base64url: {error}")))?;
    Ok(ExternalAccountKey::new(account.id.clone(), &bytes))
}

/// Returns the account, which is created if there is none.
pub(super) async fn open(
    acme: &Acme,
    storage: &Storage,
    client: &CaClient,
) -> Result<Account, Failure> {
    let _lock = loop {
        // Two processes that share the folder make one account.
        match storage.try_lock("account")? {
            Some(lock) => break lock,
            None => sleep(LOCK_PAUSE).await,
        }
    };
    let contact = format!("mailto:{}", acme.email);
    let contacts: &[&str] = if acme.email.is_empty() { &[] } else { &[&contact] };
    let failed = |step: &'static str| move |error| Failure::at_step(step, &error, client);
    let builder = || Account::builder_with_http(Box::new(client.clone()));
    if let Some(record) = stored(acme, storage)? {
        let account = builder().from_credentials(record.credentials).await;
        let account = account.map_err(failed("asking the authority for its directory"))?;
        if record.email != acme.email {
            account.update_contacts(contacts).await.map_err(failed("changing the contact"))?;
            // The credentials cannot be copied, so they are read again.
            if let Some(record) = stored(acme, storage)? {
                save(storage, &AccountRecord { email: acme.email.clone(), ..record }).await?;
            }
        }
        return Ok(account);
    }
    let key = acme.account.as_ref().map(external).transpose()?;
    let new = NewAccount {
        contact: contacts,
        terms_of_service_agreed: true,
        only_return_existing: false,
    };
    let mut left = NONCES;
    let (account, credentials) = loop {
        match builder().create(&new, acme.directory.clone(), key.as_ref()).await {
            Err(Error::Api(problem)) if left > 0 && is(&problem, "badNonce") => left -= 1,
            outcome => break outcome.map_err(failed("creating an account"))?,
        }
    };
    let (directory, email) = (acme.directory.clone(), acme.email.clone());
    save(storage, &AccountRecord { directory, email, credentials }).await?;
    Ok(account)
}

async fn save(storage: &Storage, record: &AccountRecord) -> Result<(), Failure> {
    let text = serde_json::to_string(record)
        .map_err(|error| Failure::here(format!("writing the account: {error}")))?;
    write(storage, FILE, text).await
}

/// Puts an account aside that the authority does not know any more. The next attempt makes another.
pub(super) async fn forget(storage: &Storage) -> Result<(), Failure> {
    if let Some(text) = storage.read(FILE)? {
        write(storage, "account.lost.json", text).await?;
        storage.remove(FILE)?;
    }
    Ok(())
}
