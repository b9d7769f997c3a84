"""Who answers the C calls. Every backend answers one question: address(name) -> int | None."""
