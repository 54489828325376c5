"""Whether a judge can be believed: how far it agrees with people, and sees what is worse on purpose."""
