"HTML as tags and text, for the tests of pages."
from html.parser import HTMLParser


class Reader(HTMLParser):
    "Tags with their attributes, and text"
    def __init__(self, text):
        super().__init__()
        self.tags, self.text = [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs): self.tags.append((tag, dict(attrs)))

    def handle_data(self, data): self.text += data
