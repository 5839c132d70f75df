"""Model providers: each file asks one kind of API through the host's own client and gives back a decision."""
