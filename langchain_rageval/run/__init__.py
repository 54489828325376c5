"""Execute model requests: limit their number and cost, retry them, share equal ones, and store finished results."""
