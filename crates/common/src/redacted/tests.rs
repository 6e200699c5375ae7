use super::*;

fn line(words: &[&str]) -> String {
    redacted(words.iter().copied())
}

#[test]
fn what_looks_like_a_secret_is_hidden() {
    for (words, expected) in [
        (&["python", "train.py", "--hf-token", "abc", "--steps", "3"][..], "python train.py --hf-token *** --steps 3"),
        (
            &["--api_key=abc", "WANDB_API_KEY=0123", "--password=", "-x"],
            "--api_key=*** WANDB_API_KEY=*** --password= -x",
        ),
        (&["hf_abcdefghijklmnopqrst", "--a=sk-abcdefghijklmnop"], "*** --a=***"),
        (
            &["git+https://me:word@host/x", "https://tok@host", "http://a/b@c"],
            "git+https://me:***@host/x https://***@host http://a/b@c",
        ),
        (&["-c", "login('aB3dE5gH7jK9mN1pQ3sT5vW7')"], "-c 'login('\"'\"'***'\"'\"')'"),
        (&["--token", "--next", "value"], "--token --next value"),
        (&["--AWS_SECRET_ACCESS_KEY", "a/b+c"], "--AWS_SECRET_ACCESS_KEY ***"),
    ] {
        assert_eq!(line(words), expected);
    }
}

#[test]
fn what_a_training_command_says_is_kept() {
    for words in [
        &["torchrun", "--nproc-per-node", "8", "train.py", "--max-tokens", "512", "--tokenizer", "gpt2"][..],
        &[
            "--tokenizer-path=/data/Llama-3.1-8B-Instruct",
            "--pad-token-id",
            "0",
            "--lr=3e-4",
            "--run",
            "2026-11-23_18-21-32",
        ],
        &["/home/me/checkpoints/epoch=3-step=1000.ckpt", "--commit", "0eb964c3a5b1d2f4e6a7988b9c0d1e2f3a4b5c6d"],
        &["--special-tokens", "a,b", "NCCL_DEBUG=INFO", "--config-name", "Qwen2VLForConditionalGeneration"],
    ] {
        assert_eq!(line(words), words.join(" "));
    }
}

#[test]
fn a_very_long_command_is_cut() {
    let words = vec!["größe"; 25_000];
    let cut = redacted(words);
    assert!(cut.len() < MOST_BYTES + 100 && cut.ends_with("more words)"), "{}", cut.len());
}

#[test]
fn a_command_is_printed_and_written_without_its_secrets() {
    let command: CommandLine = ["python", "train.py", "--token", "abc"].into_iter().collect();
    assert_eq!(
        (format!("{command}"), format!("{command:?}")),
        (line(&["python", "train.py", "--token", "abc"]), "python train.py --token ***".into())
    );
    assert_eq!(command.words()[3], "abc");
}

#[test]
fn lines_of_output_keep_their_spaces() {
    let line = "error:  unrecognized: --hf-token abc https://me:word@host/x\tok\n";
    assert_eq!(redacted_line(line), "error:  unrecognized: --hf-token *** https://me:***@host/x\tok\n");
}

#[test]
fn the_users_own_folder_is_written_as_a_shell_reads_it() {
    for (word, shown) in
        [("/users/me/train.py", "~/train.py"), ("/users/me", "~"), ("/users/mette/x", "/users/mette/x")]
    {
        assert_eq!(with_tilde(word, "/users/me"), shown);
        assert_eq!(with_tilde(word, ""), word);
    }
    assert_eq!(with_tilde("/x", "/"), "/x");
}
