//! The vault's rules: nothing is overwritten, what is put comes back, what is missing is not found.

use std::sync::Arc;

use bytes::Bytes;
use redrive::domain::failure::ErrorClass;
use redrive::domain::id::EnvelopeKey;
use redrive::port::vault::{LISTED, Vault};
use redrive::sim::vault::SimVault;

use crate::embedded::Embedded;
use crate::on_both;

type Subject = Arc<dyn Vault>;

async fn sim() -> Subject {
    Arc::new(SimVault::new())
}

async fn aws() -> (Embedded, Subject) {
    let embedded = Embedded::start().await;
    let vault = embedded.vault("team/a");
    (embedded, Arc::new(vault))
}

on_both!(
    what_is_put_comes_back,
    nothing_is_overwritten_and_an_own_retry_is_success,
    of_racing_puts_one_body_stays,
    a_missing_envelope_is_not_found,
    a_folder_can_be_checked,
    a_listing_is_in_key_order_and_holds_what_begins_so,
    a_listing_has_an_end,
);

fn key(name: &str) -> EnvelopeKey {
    EnvelopeKey::new(format!("team/a/envelopes/v1/orders/{name}.json")).unwrap()
}

async fn what_is_put_comes_back(vault: &Subject) {
    for (name, body) in [
        ("plain", Bytes::from_static("{\"x\":\"naïve ✓\"}".as_bytes())),
        ("large", Bytes::from(vec![b'7'; 3_000_000])),
        ("empty", Bytes::new()),
    ] {
        let stored = vault.put(&key(name), body.clone()).await.unwrap();
        assert_eq!(stored.get(), &key(name));
        assert_eq!(vault.get(&key(name)).await.unwrap(), body, "{name}");
    }
}

async fn nothing_is_overwritten_and_an_own_retry_is_success(vault: &Subject) {
    for body in [&b"{\"first\":1}"[..], b"{\"second\":2}"] {
        let stored = vault.put(&key("one"), Bytes::from_static(body)).await.unwrap();
        assert_eq!(stored.get(), &key("one"));
    }
    assert_eq!(vault.get(&key("one")).await.unwrap(), &b"{\"first\":1}"[..]);
}

async fn of_racing_puts_one_body_stays(vault: &Subject) {
    let put = |n: u8| {
        let vault = Arc::clone(vault);
        tokio::spawn(async move { vault.put(&key("race"), vec![n; 64].into()).await })
    };
    let puts: Vec<_> = (0..8).map(put).collect();
    for put in puts {
        assert_eq!(put.await.unwrap().unwrap().get(), &key("race"));
    }
    let body = vault.get(&key("race")).await.unwrap();
    assert!(body.len() == 64 && body.iter().all(|byte| *byte == body[0]));
}

async fn a_missing_envelope_is_not_found(vault: &Subject) {
    let error = vault.get(&key("missing")).await.unwrap_err();
    assert_eq!((error.class(), error.code()), (ErrorClass::NotFound, "NoSuchKey"));
}

async fn a_folder_can_be_checked(vault: &Subject) {
    vault.check("team/a/envelopes/v1/orders/").await.unwrap();
}

async fn a_listing_is_in_key_order_and_holds_what_begins_so(vault: &Subject) {
    for name in ["b/2", "b/10", "a/1", "b-1", "c/1"] {
        vault.put(&key(name), Bytes::from_static(b"{}")).await.unwrap().into_inner();
    }
    for (beginning, expected) in [
        ("b/", &["b/10", "b/2"][..]),
        ("b/1", &["b/10"]),
        ("b", &["b-1", "b/10", "b/2"]),
        ("none/", &[]),
    ] {
        let listed = vault.list(&format!("team/a/envelopes/v1/orders/{beginning}")).await.unwrap();
        let expected: Vec<_> = expected.iter().map(|name| key(name)).collect();
        assert_eq!(listed, expected, "{beginning}");
    }
}

async fn a_listing_has_an_end(vault: &Subject) {
    let name = |n: usize| key(&format!("many/{n:04}"));
    let put = |n: usize| {
        let (vault, key) = (Arc::clone(vault), name(n));
        tokio::spawn(async move { vault.put(&key, Bytes::from_static(b"{}")).await })
    };
    let names: Vec<usize> = (0..LISTED + 2).collect();
    for some in names.chunks(50) {
        let puts: Vec<_> = some.iter().map(|n| put(*n)).collect();
        for put in puts {
            put.await.unwrap().unwrap().into_inner();
        }
    }
    let listed = vault.list("team/a/envelopes/v1/orders/many/").await.unwrap();
    assert_eq!(listed, (0..LISTED).map(name).collect::<Vec<_>>());
}

/// A forged pointer must read nothing outside; memory has no outside.
#[tokio::test]
async fn keys_outside_the_prefix_are_refused() {
    let (embedded, inside) = aws().await;
    let whole = embedded.vault("");
    let outside = EnvelopeKey::new("team/ab/envelopes/v1/x.json").unwrap();
    whole.put(&outside, Bytes::from_static(b"{}")).await.unwrap().into_inner();
    assert_eq!(inside.get(&outside).await.unwrap_err().class(), ErrorClass::Invalid);
    let put = inside.put(&outside, Bytes::from_static(b"{}")).await;
    assert_eq!(put.unwrap_err().class(), ErrorClass::Invalid);
    assert_eq!(whole.get(&outside).await.unwrap(), &b"{}"[..]);
}

#[tokio::test]
async fn a_body_larger_than_any_object_of_ours_is_refused() {
    let (_embedded, vault) = aws().await;
    let body = vec![b' '; redrive::aws::s3::MAX_OBJECT_BYTES + 1];
    vault.put(&key("huge"), body.into()).await.unwrap().into_inner();
    let class = vault.get(&key("huge")).await.map(|body| body.len()).map_err(|e| e.class());
    assert_eq!(class, Err(ErrorClass::Invalid));
}

async fn put_new_says_whether_the_key_was_free(vault: &dyn Vault) {
    let new = vault.put_new(&key("new"), b"first".as_slice().into()).await.unwrap();
    assert_eq!(new.map(redrive::port::evidence::Stored::into_inner), Some(key("new")));
    let again = vault.put_new(&key("new"), b"second".as_slice().into()).await.unwrap();
    assert_eq!(again, None);
    assert_eq!(vault.get(&key("new")).await.unwrap(), b"first".as_slice());
}

#[tokio::test]
async fn put_new_says_whether_the_key_was_free_in_memory() {
    put_new_says_whether_the_key_was_free(&redrive::sim::vault::SimVault::new()).await;
}

#[tokio::test]
async fn put_new_says_whether_the_key_was_free_on_aws() {
    let (_embedded, vault) = aws().await;
    put_new_says_whether_the_key_was_free(vault.as_ref()).await;
}
