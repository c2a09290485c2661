"""What a person sees and types: flags, live views, wording."""
